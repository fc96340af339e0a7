"""The scheduler of a Kubernetes cluster as a process: elections, probes, settings, and the read-only mode."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
pytest.importorskip("kubernetes")
pytest.importorskip("aiohttp")

from kube import Kube, kube

import flowsched as fs
from flowsched.cli.kube_scheduler import read_settings
from flowsched.run.kubeapi import Api, KubernetesError
from flowsched.run.kubescheduler import Election, KubeScheduler, KubeSettings, LeaseSettings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes in place of containers")


class Leases:
    """An API server with leases; `away` refuses all requests."""

    def __init__(self) -> None:
        self.lease: Any = None
        self.version, self.away = 0, False

    async def once(self, method: str, path: str, body: Any = None) -> Any:
        await asyncio.sleep(0)
        if self.away:
            raise KubernetesError("away", 503)
        if method == "GET" and self.lease is None:
            raise KubernetesError("none", 404)
        if method == "GET":
            return copy.deepcopy(self.lease)
        version = body["metadata"].get("resourceVersion")
        if (self.lease is None) != (method == "POST") or (self.lease and version != str(self.version)):
            raise KubernetesError("conflict", 409)
        self.version += 1
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return self.lease


def election(api: Leases, name: str, duration: float = 0.6) -> Election:
    return Election(api, LeaseSettings("space", "flowsched", duration), name)  # type: ignore[arg-type]


def test_one_process_leads_until_it_leaves() -> None:
    async def main() -> None:
        api = Leases()
        many = [election(api, str(i), 0.3) for i in range(5)]
        leading = list[str]()

        async def one(which: Election, name: str) -> None:
            await which.lead()
            leading.append(name)
            await asyncio.wait([asyncio.create_task(which.lost())], timeout=0.5)
            leading.append(name)
            await which.leave()

        await asyncio.gather(*(one(each, str(i)) for i, each in enumerate(many)))
        assert leading[::2] == leading[1::2] and sorted(leading[::2]) == list("01234"), "one after the other"
        assert api.lease["spec"]["leaseTransitions"] >= 4

    asyncio.run(main())


def test_a_leader_that_is_dead_is_followed_after_its_time_and_one_that_cannot_renew_stops_before() -> None:
    async def main() -> None:
        api = Leases()
        first, second = election(api, "first"), election(api, "second")
        await first.lead()
        begun = time.monotonic()
        await second.lead()  # nobody renews
        assert 0.5 < time.monotonic() - begun < 5
        await asyncio.wait_for(first.lost(), 5)
        assert api.lease["spec"]["holderIdentity"] == "second"
        api.away = True
        begun = time.monotonic()
        await asyncio.wait_for(second.lost(), 5)
        assert time.monotonic() - begun < 0.6, "before another one may begin"

    asyncio.run(main())


@pytest.mark.parametrize("away", [False, True])
def test_a_lease_is_renewed_while_a_leader_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: bool) -> None:
    """However long the lists take; a leader that has lost the lease by then binds no pod."""
    leases = Leases()

    class Slow(Api):
        async def once(self, method: str, path: str, body: Any = None) -> Any:
            return await leases.once(method, path, body)

        async def list(self, kind: str) -> Any:
            end, before, leases.away = time.monotonic() + (1.6 if away else 4.5), leases.version, away
            while leases.version < before + 3 and time.monotonic() < end:
                await asyncio.sleep(0.02)
            return await super().list(kind)

        async def ask(self, method: str, path: str, body: Any = None) -> Any:
            return await Api.once(self, method, path, body)

    monkeypatch.setattr("flowsched.run.kubescheduler.Api", Slow)

    async def main(state: Kube, client: Any) -> None:
        stop, lease = asyncio.Event(), LeaseSettings("space", "flowsched", 1.5)
        running = asyncio.create_task(KubeScheduler(KubeSettings(lease=lease), client=client).run(stop))
        path = make(state, "p")
        await until(lambda: running.done() or state.pods[path]["spec"].get("nodeName"))
        if away:
            with pytest.raises(KubernetesError, match="the lease is lost"):
                await running
            assert "nodeName" not in state.pods[path]["spec"]
        else:
            assert not running.done() and leases.lease["spec"]["holderIdentity"]
            stop.set()
            await running

    with kube(tmp_path) as (state, client):
        state.node("n1")
        state.dead.add("n1")
        asyncio.run(main(state, client))


def test_the_manifests_allow_the_lease_of_the_settings() -> None:
    """Kustomize changes a name in a role that is also that of a ConfigMap which it makes."""
    deploy = Path(__file__).parents[2] / "deploy"
    roles = [one for one in yaml.safe_load_all((deploy / "rbac.yaml").read_text()) if one["kind"] == "Role"]
    (names,) = (rule["resourceNames"] for rule in roles[0]["rules"] if "resourceNames" in rule)
    assert names == [LeaseSettings().name]
    made = yaml.safe_load((deploy / "kustomization.yaml").read_text())["configMapGenerator"]
    assert not {one["name"] for one in made} & set(names)
    read_settings(deploy / "flowsched.toml")


def test_an_account_without_a_right_to_the_lease_does_not_wait_for_it() -> None:
    class Denied:
        async def once(self, method: str, path: str, body: Any = None) -> Any:
            raise KubernetesError("forbidden", 403)

    with pytest.raises(KubernetesError, match="forbidden"):
        asyncio.run(election(Denied(), "one").lead())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("scheduler_names = []", "a list of names"),
        ("policy = 'none'", "policy"),
        ("listen = 'here'", "HOST:PORT"),
        ("[lease]\nduration = -1", "duration"),
        ("colour = 1", "unknown"),
    ],
)
def test_faults_of_settings(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "f.toml").write_text(text)
    with pytest.raises(fs.InputError, match=fault):
        read_settings(tmp_path / "f.toml")


def test_settings(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text('scheduler_names = ["a", "b"]\npolicy = "pack"\n[lease]\nnamespace = "x"\n')
    found = read_settings(tmp_path / "f.toml")
    assert (found.names, found.policy, found.lease) == (("a", "b"), fs.Policy.named("pack"), LeaseSettings("x"))
    (tmp_path / "f.toml").write_text("")
    assert read_settings(tmp_path / "f.toml") == KubeSettings()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Kube, Any]]:
    with kube(tmp_path) as (state, client):
        state.node("n1")
        state.dead.add("n1")
        yield state, client


def make(state: Kube, name: str, cpu: str = "1", scheduler: str = "flowsched", **spec: Any) -> str:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    state.create(
        "s", {"metadata": {"name": name}, "spec": {"containers": [container], "schedulerName": scheduler, **spec}}
    )
    return f"/api/v1/namespaces/s/pods/{name}"


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


def test_probes_and_metrics(cluster: tuple[Kube, Any]) -> None:
    state, client = cluster

    def get(where: Any, path: str) -> tuple[int, str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{where[1]}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()

    async def main() -> None:
        stop = asyncio.Event()
        one = KubeScheduler(KubeSettings(listen="127.0.0.1:0"), client=client)
        running = asyncio.create_task(one.run(stop))
        await until(lambda: one.state == "leading")
        path = make(state, "p")
        await until(lambda: state.pods[path]["spec"].get("nodeName"))
        assert await asyncio.to_thread(get, one.address, "/healthz") == (200, "ok")
        assert await asyncio.to_thread(get, one.address, "/readyz") == (200, "leading")
        _, text = await asyncio.to_thread(get, one.address, "/metrics")
        assert "flowsched_leading 1" in text and "flowsched_tasks_running 1.0" in text
        stop.set()
        await running

    asyncio.run(main())


def test_nothing_is_changed_by_a_dry_run_next_to_another_scheduler(cluster: tuple[Kube, Any]) -> None:
    state, client = cluster
    state.node("n2")
    state.dead.add("n2")
    lines = list[str]()

    async def main() -> None:
        stop = asyncio.Event()
        settings = KubeSettings(names=("default-scheduler",), lease=LeaseSettings("none"))
        running = asyncio.create_task(KubeScheduler(settings, client=client, advise=lines.append).run(stop))
        paths = [make(state, f"p{i}", "3", "default-scheduler") for i in range(3)]
        await until(lambda: len(lines) == 3)
        places = [line.partition(": ")[2] for line in sorted(lines)]
        assert sorted(place[:5] for place in places) == ["n1", "n2", "waits"]
        late = next(path for path, place in zip(paths, places, strict=True) if place.startswith("waits"))
        with state.lock:  # another one binds it at once, elsewhere than here
            other = paths[places.index("n1")]
            state.delete(other)
            fast = make(state, "fast", "1", "default-scheduler")
            state.bind(fast, {"target": {"name": "n2"}})
        await until(lambda: f"{late.replace('/api/v1/namespaces/', '').replace('/pods', '')}: n1" in lines)
        await until(lambda: any(line.startswith("s/fast: n") for line in lines))
        stop.set()
        await running

    asyncio.run(main())
    assert state.events == [] and all("conditions" not in pod["status"] for pod in state.pods.values())
    assert [path for path, pod in state.pods.items() if "nodeName" in pod["spec"]] == ["/api/v1/namespaces/s/pods/fast"]


@pytest.mark.long
def test_the_command(tmp_path: Path, cluster: tuple[Kube, Any]) -> None:
    state, client = cluster
    host, token = client.configuration.host, state.token
    about = {"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}
    about |= {
        "clusters": [{"name": "c", "cluster": {"server": host}}],
        "users": [{"name": "u", "user": {"token": token}}],
    }
    (tmp_path / "config").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **about}))
    command = [sys.executable, "-m", "flowsched", "kube-scheduler"]
    environment = os.environ | {"KUBECONFIG": str(tmp_path / "config")}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        path, end = make(state, "p"), time.monotonic() + 60
        while "nodeName" not in state.pods[path]["spec"] and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert state.pods[path]["spec"]["nodeName"] == "n1"
    state.denied = {"nodes"}
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and "403 nodes is forbidden" in refused.stderr
