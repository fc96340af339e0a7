"""Views of a scheduler's database, which name its contents for queries in SQL.

==========  ========================================================================================================
events      ``call``, ``time``, ``kind``, ``job``, ``task``, ``user``, ``machine``, ``run``, ``event``: all of it as JSON.
            An event without a time of its own has that of the next round.
rounds      ``call``, ``round``: its number, ``time``, ``placed``, ``migrated``, ``preempted``, ``waiting``: numbers of
            tasks, ``cost``.  A round that raised an error has no numbers.
waiting     ``call``, ``round``, ``time``, ``reason``, ``price``, ``tasks``: tasks that wait after a round.
tasks       ``call``, ``time``, ``task``, ``job``, ``user``, ``priority``, ``demand`` as JSON, and a column for each
            resource: submitted tasks.
starts      ``call``, ``time``, ``run``, ``task``, ``machine``, ``devices``, ``why``: Place, Migrate or TaskStarted.
ends        ``call``, ``time``, ``run``, ``task``, ``machine``, ``why``: see `flowsched.EndedRun`.
runs        ``run``, ``task``, ``job``, ``user``, ``priority``, ``machine``, ``devices``, ``started``, ``ended`` (NULL: it
            runs), ``why`` it ended, ``demand``, and a column for each resource.
==========  ========================================================================================================

Ids are strings and numbers; a tuple is a JSON array.  Times are in the unit of the events.

The views are computed from the JSON of `calls`.  What they join is materialized, else SQLite would compute a view again
for each row of the other one.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence

from flowsched.exceptions import JournalError

_TIME = (
    "(SELECT later.time FROM calls AS later WHERE later.n > calls.n AND later.kind = 'round' ORDER BY later.n LIMIT 1)"
)

_VIEWS = {
    "events": """
SELECT calls.n AS call, coalesce(json_extract(e.value, '$.time'), {time}) AS time, json_extract(e.value, '$.kind') AS kind,
  CASE WHEN e.value ->> '$.kind' IN ('JobSubmitted', 'JobRemoved') THEN e.value ->> '$.id' ELSE e.value ->> '$.job' END AS job,
  CASE e.value ->> '$.kind' WHEN 'TaskSubmitted' THEN e.value ->> '$.task.id' ELSE e.value ->> '$.task' END AS task,
  CASE WHEN e.value ->> '$.kind' LIKE 'User%' THEN e.value ->> '$.id' ELSE e.value ->> '$.user' END AS user,
  CASE WHEN e.value ->> '$.kind' LIKE 'Machine%' THEN e.value ->> '$.id' ELSE e.value ->> '$.machine' END AS machine,
  e.value ->> '$.run' AS run, e.value AS event
FROM calls, json_each(calls.body) AS e WHERE calls.kind = 'events'""",
    "rounds": """
SELECT n AS call, body ->> '$[0]' AS round, time, body ->> '$[3][2]' AS placed, body ->> '$[3][1]' AS migrated,
  body ->> '$[3][0]' AS preempted, body ->> '$[3][3]' AS waiting, body ->> '$[3][5]' AS cost
FROM calls WHERE kind = 'round'""",
    "waiting": """
SELECT calls.n AS call, calls.body ->> '$[0]' AS round, calls.time, w.value ->> '$[1]' AS reason,
  w.value ->> '$[2]' AS price, w.value ->> '$[0]' AS tasks
FROM calls, json_each(calls.extra) AS w WHERE calls.kind = 'round'""",
    "tasks": """
WITH e AS MATERIALIZED (
  SELECT calls.n AS call, coalesce(e.value ->> '$.time', {time}) AS time, e.value AS event, e.value ->> '$.kind' AS kind
  FROM calls, json_each(calls.body) AS e
  WHERE calls.kind = 'events' AND e.value ->> '$.kind' IN ('JobSubmitted', 'TaskSubmitted')
), jobs AS MATERIALIZED (
  SELECT call, event ->> '$.id' AS job, event ->> '$.user' AS user, coalesce(event ->> '$.priority', 0) AS priority
  FROM e WHERE kind = 'JobSubmitted'
), late AS MATERIALIZED (
  SELECT call, time, event ->> '$.job' AS job, event ->> '$.task' AS task FROM e WHERE kind = 'TaskSubmitted'
)
SELECT call, time, task ->> '$.id' AS task, job, user, priority, task ->> '$.demand' AS demand{resources} FROM (
  SELECT e.call, e.time, t.value AS task, event ->> '$.id' AS job, event ->> '$.user' AS user,
    coalesce(event ->> '$.priority', 0) AS priority
  FROM e, json_each(e.event, '$.tasks') AS t WHERE e.kind = 'JobSubmitted'
  UNION ALL
  SELECT call, time, task, job, user, priority FROM (
    SELECT late.*, jobs.user, coalesce(jobs.priority, 0) AS priority, max(jobs.call) AS submitted
    FROM late LEFT JOIN jobs ON jobs.job = late.job AND jobs.call <= late.call GROUP BY late.call, late.task))""",
    "starts": """
SELECT calls.n AS call, calls.time, (calls.body ->> '$[3]') + d.key AS run, d.value ->> '$[1]' AS task,
  CASE d.value ->> '$[0]' WHEN 's' THEN d.value ->> '$[2]' ELSE d.value ->> '$[3]' END AS machine,
  CASE d.value ->> '$[0]' WHEN 's' THEN d.value ->> '$[3]' ELSE d.value ->> '$[4]' END AS devices,
  CASE d.value ->> '$[0]' WHEN 's' THEN 'Place' ELSE 'Migrate' END AS why
FROM calls, json_each(calls.body, '$[2]') AS d WHERE calls.kind = 'commit' AND d.value ->> '$[0]' <> 'p'
UNION ALL
SELECT calls.n, coalesce(r.value ->> '$[4]', {time}), r.value ->> '$[1]', r.value ->> '$[0]', r.value ->> '$[2]', NULL, 'TaskStarted'
FROM calls, json_each(calls.extra) AS r WHERE calls.kind = 'events' AND r.value ->> '$[3]' = 'TaskStarted'""",
    "ends": """
SELECT calls.n AS call, coalesce(r.value ->> '$[4]', calls.time, {time}) AS time, r.value ->> '$[1]' AS run, r.value ->> '$[0]' AS task,
  r.value ->> '$[2]' AS machine, r.value ->> '$[3]' AS why
FROM calls, json_each(calls.extra) AS r
WHERE calls.kind IN ('events', 'commit') AND r.value ->> '$[3]' <> 'TaskStarted'""",
    "runs": """
WITH s AS MATERIALIZED (SELECT * FROM starts), t AS MATERIALIZED (SELECT * FROM tasks),
  e AS MATERIALIZED (SELECT run, time, why FROM ends), k AS MATERIALIZED (
    SELECT s.*, max(t.call) AS submitted FROM s LEFT JOIN t ON t.task = s.task AND t.call < s.call GROUP BY s.run)
SELECT k.run, k.task, t.job, t.user, t.priority, k.machine, k.devices, k.time AS started, e.time AS ended, e.why,
  t.demand{columns}
FROM k LEFT JOIN t ON t.task = k.task AND t.call = k.submitted LEFT JOIN e ON e.run = k.run""",
}


def views(resources: Sequence[str]) -> dict[str, str]:
    """Return the statements that make the views by name, with a column for each resource that has an ordinary name."""
    named = [(i, name) for i, name in enumerate(resources) if name.isidentifier() and name.isascii()]
    named = [(i, name) for i, name in named if name.lower() not in _TAKEN]
    amounts = "".join(
        f", coalesce(task ->> '$.demand.{name}', task ->> '$.demand[{i}]', 0) AS {name}" for i, name in named
    )
    columns = "".join(f", t.{name}" for _, name in named)
    if sqlite3.sqlite_version_info < (3, 35):
        raise JournalError(f"a journal needs SQLite 3.35 or later, and this Python has {sqlite3.sqlite_version}")
    parts = {"{time}": _TIME, "{resources}": amounts, "{columns}": columns}
    found = {}
    for view, sql in _VIEWS.items():
        for name, text in parts.items():
            sql = sql.replace(name, text)
        # `->>` came with SQLite 3.38, and a view that is not understood would keep out the whole database
        found[view] = f"CREATE VIEW {view} AS" + _ARROW.sub(r"json_extract(\1, \2)", sql)
    return found


_ARROW = re.compile(r"([\w.]+) ->> ('[^']*')")

_TAKEN = frozenset(
    "call time task job user priority demand run machine devices started ended why submitted select from".split()
)
