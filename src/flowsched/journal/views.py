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
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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
SELECT call, time, task ->> '$.id' AS task, job, user, priority, task ->> '$.demand' AS demand{resources} FROM (
  SELECT calls.n AS call, coalesce(e.value ->> '$.time', {time}) AS time, t.value AS task, e.value ->> '$.id' AS job,
    e.value ->> '$.user' AS user, coalesce(e.value ->> '$.priority', 0) AS priority
  FROM calls, json_each(calls.body) AS e, json_each(e.value, '$.tasks') AS t
  WHERE calls.kind = 'events' AND e.value ->> '$.kind' = 'JobSubmitted'
  UNION ALL
  SELECT late.call, late.time, late.task, late.job, j.user, coalesce(j.event ->> '$.priority', 0) FROM (
    SELECT events.call, events.time, events.event ->> '$.task' AS task, events.job, max(job.call) AS submitted
    FROM events LEFT JOIN events AS job ON job.kind = 'JobSubmitted' AND job.job = events.job AND job.call <= events.call
    WHERE events.kind = 'TaskSubmitted' GROUP BY events.call, events.event
  ) AS late LEFT JOIN events AS j ON j.kind = 'JobSubmitted' AND j.job = late.job AND j.call = late.submitted)""",
    "starts": """
SELECT calls.n AS call, calls.time, (calls.body ->> '$[3]') + d.key AS run, d.value ->> '$[1]' AS task,
  CASE d.value ->> '$[0]' WHEN 's' THEN d.value ->> '$[2]' ELSE d.value ->> '$[3]' END AS machine,
  CASE d.value ->> '$[0]' WHEN 's' THEN d.value ->> '$[3]' ELSE d.value ->> '$[4]' END AS devices,
  CASE d.value ->> '$[0]' WHEN 's' THEN 'Place' ELSE 'Migrate' END AS why
FROM calls, json_each(calls.body, '$[2]') AS d WHERE calls.kind = 'commit' AND d.value ->> '$[0]' <> 'p'
UNION ALL
SELECT calls.n, {time}, r.value ->> '$[1]', r.value ->> '$[0]', r.value ->> '$[2]', NULL, 'TaskStarted'
FROM calls, json_each(calls.extra) AS r WHERE calls.kind = 'events' AND r.value ->> '$[3]' = 'TaskStarted'""",
    "ends": """
SELECT calls.n AS call, coalesce(calls.time, {time}) AS time, r.value ->> '$[1]' AS run, r.value ->> '$[0]' AS task,
  r.value ->> '$[2]' AS machine, r.value ->> '$[3]' AS why
FROM calls, json_each(calls.extra) AS r
WHERE calls.kind IN ('events', 'commit') AND r.value ->> '$[3]' <> 'TaskStarted'""",
    "runs": """
SELECT s.run, s.task, t.job, t.user, t.priority, s.machine, s.devices, s.time AS started, e.time AS ended, e.why,
  t.demand{columns}
FROM (SELECT starts.*, max(tasks.call) AS submitted FROM starts
      LEFT JOIN tasks ON tasks.task = starts.task AND tasks.call < starts.call GROUP BY starts.run) AS s
LEFT JOIN tasks AS t ON t.task = s.task AND t.call = s.submitted
LEFT JOIN ends AS e ON e.run = s.run""",
}


def views(resources: Sequence[str]) -> dict[str, str]:
    """Return the statements that make the views by name, with a column for each resource that has an ordinary name."""
    named = [(i, name) for i, name in enumerate(resources) if name.isidentifier() and name.isascii()]
    named = [(i, name) for i, name in named if name.lower() not in _TAKEN]
    amounts = "".join(
        f", coalesce(task ->> '$.demand.{name}', task ->> '$.demand[{i}]', 0) AS {name}" for i, name in named
    )
    columns = "".join(f", t.{name}" for _, name in named)
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
