"""The Helm chart in a real cluster: its promises, each seen to hold while clients stream through the Service.

    python3 -m venv env && env/bin/pip install 'target/wheels/vosti-'*.whl httpx
    env/bin/python bench/server/cluster.py --set image.repository=REGISTRY/vosti \
        --set models.existingClaim=models,models.readOnly=true,model=/var/lib/vosti/my-model.gguf

Installs a release into kubectl's current context, checks it, and uninstalls it. Needs kubectl and helm, and a machine that reaches the
cluster's pods and Services, as a node does. `--set` is given to Helm as it is: the image, the model, the resources. Each check prints
a line with what was seen. Exit code 0 if every check passed.
"""
import argparse
import collections
import hashlib
import json
import pathlib
import statistics
import subprocess
import threading
import time

import httpx
from vosti import client

CHART = pathlib.Path(__file__).parents[2] / "deploy/helm"
SUBJECTS = "the sea, mountains, winter, bread, a clock, the moon, horses, rain".split(", ")


class Cluster:
    """The release under test, by way of kubectl, Helm and the Service."""

    def __init__(self, options):
        self.options, self.release = options, options.release
        self.name = options.release if "vosti" in options.release else options.release + "-vosti"
        self.labels = f"app.kubernetes.io/instance={options.release}"

    def run(self, *command, text=None):
        return subprocess.run([str(part) for part in command], input=text, capture_output=True, text=True)

    def try_kubectl(self, *arguments, text=None):
        return self.run(self.options.kubectl, "-n", self.options.namespace, *arguments, text=text)

    def kubectl(self, *arguments, text=None):
        done = self.try_kubectl(*arguments, text=text)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr.strip()}"
        return done.stdout

    def get(self, *arguments):
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def try_helm(self, verb, *settings):
        sets = [part for setting in [*self.options.set, *settings] for part in ("--set", setting)]
        return self.run(self.options.helm, "-n", self.options.namespace, verb, self.release, CHART, *sets)

    def helm(self, verb, *settings):
        done = self.try_helm(verb, f"replicas={self.options.replicas}", *settings)
        assert done.returncode == 0, f"helm {verb}: {done.stderr.strip()}"

    def pods(self):
        """The pods that are not about to end."""
        return [pod for pod in self.get("pods", "-l", self.labels)["items"] if "deletionTimestamp" not in pod["metadata"]]

    def ready(self):
        """The same, if they are ready: {name: address}."""
        found = {}
        for pod in self.pods():
            states = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
            if states.get("Ready") == "True":
                found[pod["metadata"]["name"]] = f"http://{pod['status']['podIP']}:8000"
        return found

    def settle(self):
        """Waits until the rollout is complete and no pod is left of the one before."""
        self.kubectl("rollout", "status", f"deployment/{self.name}", "--timeout", f"{self.options.patience}s")
        self.until(lambda: len(self.get("pods", "-l", self.labels)["items"]) == self.options.replicas == len(self.ready()), "pods are ready")

    def until(self, holds, what):
        end = time.monotonic() + self.options.patience
        while not holds():
            assert time.monotonic() < end, f"waited {self.options.patience} s, and not yet: {what}"
            time.sleep(0.25)

    def service(self):
        spec = self.get("service", self.name)["spec"]
        return f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}"


def body(number, tokens):
    subject = SUBJECTS[number % len(SUBJECTS)]
    return {"prompt": f"A few words about {subject}:", "seed": number, "temperature": 0.9, "max_tokens": tokens, "ignore_eos": True,
            "vosti_digest": True}


def streamed(http, url, number, tokens):
    """The text and the receipt's digest of one streamed answer. Fails unless the stream is whole."""
    text, digest, ended = "", "", False
    with http.stream("POST", url + "/v1/completions", json={"stream": True, "model": http.model, **body(number, tokens)}) as response:
        if response.status_code != 200:
            response.read()
            raise AssertionError(f"{response.status_code}: {response.text}")
        for line in response.iter_lines():
            if line == "data: [DONE]":
                ended = True
            elif line.startswith("data: "):
                chunk = json.loads(line[6:])
                assert "error" not in chunk, chunk
                for choice in chunk["choices"]:
                    text += choice.get("text") or ""
                    digest += (choice.get("vosti_receipt") or {}).get("digest", "")
    assert ended and digest, "the stream has no end"
    return text, digest


class Load:
    """Clients that stream through the Service until they are stopped, and compare each answer with the undisturbed one."""

    def __init__(self, cluster, alone, make, clients=4):
        self.cluster, self.alone, self.url = cluster, alone, cluster.service()
        self.wrong, self.count, self.stopped = [], 0, threading.Event()
        self.workers = [threading.Thread(target=self.work, args=(make, worker)) for worker in range(clients)]

    def work(self, make, number):
        http = make()
        while not self.stopped.is_set():
            number = (number + 1) % len(SUBJECTS)
            try:
                if streamed(http, self.url, number, self.cluster.options.tokens) != self.alone[number]:
                    self.wrong.append(f"stream {number} differs")
            except Exception as error:  # Whatever it is, a stream was lost.
                self.wrong.append(f"stream {number} was lost: {error!r}")
            self.count += 1
        http.close()

    def __enter__(self):
        for worker in self.workers:
            worker.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for worker in self.workers:
            worker.join()

    def passed(self):
        assert not self.wrong, f"{len(self.wrong)} of {self.count} streams: " + "; ".join(self.wrong[:5])
        return f"{self.count} streams, all whole and equal"


class Again(httpx.HTTPTransport):
    """Sends a request again if its kept connection was closed before an answer began, as HTTP/1.1 asks of clients. Retries nothing else."""
    count = 0

    def handle_request(self, request):
        try:
            return super().handle_request(request)
        except httpx.RemoteProtocolError:
            Again.count += 1
            return super().handle_request(request)


class Checks:
    """The checks, in order. Each returns what it saw."""

    def __init__(self, cluster):
        self.cluster, self.options, self.model = cluster, cluster.options, ""

    def named(self, http):
        http.model = self.model
        return http

    def fresh(self):
        """A client with a connection for each request, which tries nothing again."""
        return self.named(httpx.Client(timeout=600, limits=httpx.Limits(max_keepalive_connections=0)))

    def install(self):
        begun = time.monotonic()
        self.cluster.helm("install")
        self.cluster.settle()
        seconds = time.monotonic() - begun
        for pod in self.cluster.pods():
            name = pod["metadata"]["name"]
            ready = next(one["lastTransitionTime"] for one in pod["status"]["conditions"] if one["type"] == "Ready")
            log = self.cluster.kubectl("logs", name, "--timestamps").splitlines()
            loaded = next((line[:20].rstrip(".") + "Z" for line in log if " serving " in line), None)
            assert loaded and loaded[:19] <= ready[:19], f"{name} was ready at {ready} and had its model at {loaded}"
        self.model = httpx.get(self.cluster.service() + "/v1/models").json()["data"][0]["id"]
        return f"{self.options.replicas} pods ready after {seconds:.0f} s, each after its model was loaded"

    def same_bits(self):
        """Every pod, and the Service, give one fingerprint and the same answers."""
        prints = {httpx.get(url + "/v1/models").json()["data"][0]["system_fingerprint"] for url in self.cluster.ready().values()}
        assert len(prints) == 1, prints
        answers = collections.defaultdict(set)
        with self.fresh() as http:
            for number in range(len(SUBJECTS)):
                for url in [*self.cluster.ready().values(), *[self.cluster.service()] * 2]:
                    answers[number].add(streamed(http, url, number, self.options.tokens))
        assert all(len(same) == 1 for same in answers.values()), "answers differ between pods"
        self.alone = {number: same.pop() for number, same in answers.items()}
        digest = hashlib.sha256("".join(digest for _, digest in self.alone.values()).encode()).hexdigest()[:16]
        return f"{prints.pop()}; {len(answers)} questions to each pod and the Service, digest of all {digest}"

    def confinement(self):
        """A user of its own, a read-only root, no capability, no token of the cluster."""
        name = sorted(self.cluster.ready())[0]
        script = ("id -u; grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/1/status; "
                  "touch /written 2>&1; ls /var/run/secrets/kubernetes.io 2>&1; touch /tmp/written && echo tmp is writable")
        seen = self.cluster.kubectl("exec", name, "--", "sh", "-c", script).split("\n")
        lines = dict(line.split(":\t") for line in seen if ":\t" in line)
        assert seen[0] == "10001" and int(lines["CapEff"], 16) == int(lines["CapBnd"], 16) == 0, seen
        assert lines["NoNewPrivs"] == "1" and lines["Seccomp"] == "2", seen
        assert any("Read-only file system" in line for line in seen) and any("No such file" in line for line in seen), seen
        assert "tmp is writable" in seen, seen
        return "user 10001, no capability, read-only root, seccomp, no token"

    def rolling_update(self, make=None, what="a connection for each request"):
        """No request is refused and no stream is cut while every pod is replaced."""
        before = set(self.cluster.ready())
        with Load(self.cluster, self.alone, make or self.fresh) as load:
            time.sleep(2)
            begun = time.monotonic()
            self.cluster.kubectl("rollout", "restart", f"deployment/{self.cluster.name}")
            self.cluster.settle()
            seconds = time.monotonic() - begun
            time.sleep(2)
        assert not before & set(self.cluster.ready()), "a pod is still there"
        return f"{load.passed()}, {what}; all pods replaced in {seconds:.0f} s"

    def rolling_update_keepalive(self):
        """The same for clients that keep their connections: a drain closes them, and answers no request with 503."""
        seen = self.rolling_update(lambda: self.named(httpx.Client(timeout=600, transport=Again())), "connections kept between requests")
        return f"{seen}; {Again.count} requests were sent again on a new connection"

    def drain(self):
        """A pod that is deleted finishes the streams that it has."""
        pods, tokens, seen = self.cluster.ready(), self.options.tokens * 20, {}
        with self.fresh() as http:
            alone = streamed(http, next(iter(pods.values())), 1, tokens)

        def long():
            with self.fresh() as http:
                seen["stream"] = streamed(http, self.cluster.service(), 1, tokens)
        thread = threading.Thread(target=long)
        thread.start()
        busy = []

        def find():
            busy[:] = [name for name, url in pods.items() if httpx.get(url + "/status").json()["running"]]
            return busy
        self.cluster.until(find, "a pod answers")
        begun = time.monotonic()
        self.cluster.kubectl("delete", "pod", busy[0], "--wait=false")
        thread.join()
        seconds = time.monotonic() - begun
        assert seen.get("stream") == alone, "the stream was cut or differs"
        self.cluster.settle()
        return f"{busy[0]} was deleted, and its stream of {tokens} tokens ended whole {seconds:.1f} s later"

    def killed(self):
        """A pod that is killed at once: `vosti.client` continues its streams at another one."""
        waits = []

        def resuming():
            return self.named(client.http(patience=60, on_resume=waits.append))
        with Load(self.cluster, self.alone, resuming) as load:
            for _ in range(self.options.kills):
                time.sleep(self.options.every)
                pods, busy = self.cluster.ready(), None
                while busy is None:
                    busy = next((name for name, url in pods.items() if httpx.get(url + "/status").json()["running"]), None)
                self.options.kill(self.cluster, busy)
                self.cluster.settle()
        assert waits, "no stream was resumed"
        return (f"{self.options.kills} pods killed; {load.passed()}; {len(waits)} resumed, "
                f"{statistics.median(waits):.2f} s from the break to the next chunk (median), at most {max(waits):.2f}")

    def evictions(self):
        """The disruption budget lets one pod go at a time."""
        first, second = sorted(self.cluster.ready())[:2]

        def evict(name):
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": self.options.namespace}}
            path = f"/api/v1/namespaces/{self.options.namespace}/pods/{name}/eviction"
            return self.cluster.try_kubectl("create", "--raw", path, "-f", "-", text=json.dumps(eviction))
        assert evict(first).returncode == 0
        refused = evict(second)
        assert refused.returncode and "disruption budget" in refused.stderr, refused
        self.cluster.settle()
        assert evict(second).returncode == 0
        self.cluster.settle()
        return "the second of two evictions is refused until the first pod is replaced"

    def api_key(self):
        """A key in a secret is asked for after an upgrade."""
        self.cluster.kubectl("create", "secret", "generic", self.cluster.name + "-check", "--from-literal=api-key=open sesame")
        try:
            self.cluster.helm("upgrade", f"apiKey.existingSecret={self.cluster.name}-check")
            self.cluster.settle()
            url = self.cluster.service() + "/v1/models"
            statuses = httpx.get(url).status_code, httpx.get(url, headers={"authorization": "Bearer open sesame"}).status_code
            assert statuses == (401, 200), statuses
            self.cluster.helm("upgrade")
            self.cluster.settle()
        finally:
            self.cluster.kubectl("delete", "secret", self.cluster.name + "-check")
        return "401 without the key, 200 with it"

    def refusals(self):
        """A wrong value is refused by name; a wrong model, or one that does not fit, says so in a line, and the former pods stay."""
        done = self.cluster.try_helm("upgrade", "contxt=5")
        assert done.returncode and "contxt" in done.stderr, done
        said = []
        for settings in (["model=/var/lib/vosti/no-such-model.gguf"], ["resources.limits.memory=64Mi", "resources.requests.memory=64Mi"]):
            before = set(self.cluster.ready())
            self.cluster.helm("upgrade", *settings)
            lines = []

            def complaint():
                for pod in self.cluster.pods():
                    name = pod["metadata"]["name"]
                    if name not in before and pod["status"].get("containerStatuses", [{}])[0].get("restartCount"):
                        lines[:] = self.cluster.kubectl("logs", name, "--previous").splitlines()
                return lines
            self.cluster.until(complaint, "the new pod ends")
            assert before <= set(self.cluster.ready()), "a former pod is gone"
            said.append(lines[-1])
        self.cluster.helm("upgrade")
        self.cluster.settle()
        return "; ".join(said)

    def autoscaling(self):
        """The autoscaler takes over the number of replicas as it is."""
        more = [f"autoscaling.enabled=true,autoscaling.minReplicas={self.options.replicas}"]
        before = set(self.cluster.ready())
        self.cluster.helm("upgrade", *more)
        time.sleep(5)
        scaler = self.cluster.get("hpa", self.cluster.name)["spec"]
        count = self.cluster.get("deployment", self.cluster.name)["spec"]["replicas"]
        assert count == self.options.replicas and before == set(self.cluster.ready()), f"{count} replicas"
        self.cluster.helm("upgrade")
        self.cluster.settle()
        return f"accepted, for {scaler['minReplicas']} to {scaler['maxReplicas']} replicas; the pods stayed"

    def uninstall(self):
        """Nothing is left of the release."""
        done = self.cluster.run(self.options.helm, "-n", self.options.namespace, "uninstall", self.cluster.release)
        assert done.returncode == 0, done.stderr
        kinds = "pods,replicasets,deployments,services,endpointslices,configmaps,secrets,pdb,hpa,pvc,serviceaccounts"
        self.cluster.until(lambda: not self.cluster.get(kinds, "-l", self.cluster.labels)["items"], "nothing is left")
        return "nothing is left"


def by_force(cluster, name):
    """Ends a pod at once, as a lost node does."""
    cluster.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--wait=false")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--set", action="append", default=[], help="values for the chart, as Helm takes them")
    parser.add_argument("--release", default="vosti-check")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--helm", default="helm")
    parser.add_argument("--kubectl", default="kubectl")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=48, help="tokens of an answer")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--every", type=float, default=2, help="seconds of load before a kill")
    parser.add_argument("--patience", type=int, default=300, help="seconds to wait for pods")
    parser.add_argument("--only", action="append", default=[], help="checks to run besides install and same_bits")
    options = parser.parse_args()
    options.kill = by_force
    checks = Checks(Cluster(options))
    order = ["install", "same_bits", "confinement", "rolling_update", "rolling_update_keepalive", "drain", "killed", "evictions",
             "api_key", "refusals", "autoscaling"]
    needed = ["install", "same_bits"]

    def holds(name):
        try:
            print(f"ok      {name}: {getattr(checks, name)()}", flush=True)
        except AssertionError as error:
            print(f"FAILED  {name}: {error}", flush=True)
            return False
        return True
    passed = True
    try:
        for name in order:
            if not options.only or name in [*needed, *options.only]:
                passed &= holds(name)
            if not passed and name in needed:
                break
    finally:
        passed &= holds("uninstall")
    raise SystemExit(not passed)


if __name__ == "__main__":
    main()
