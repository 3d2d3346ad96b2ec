"""Checks a manifest against the fields of kubeflow.org/v2beta1 MPIJob and of the pods in it.

An API server ignores or refuses fields that it does not know; this finds misspelt and misplaced ones,
wrong types and values without a cluster. Only the fields of pods that the manifest uses are listed.
  check_mpijob.py FILE
"""
import sys

import yaml

TEXT, COUNT, FLAG = str, int, bool
QUANTITY = (str, int)  # resource.Quantity: "32Gi" or 1


def one_of(*values):
    return lambda value: value in values


SECURITY_OF_POD = {
    "runAsNonRoot": FLAG, "runAsUser": COUNT, "runAsGroup": COUNT, "fsGroup": COUNT,
    "seccompProfile": {"type!": one_of("RuntimeDefault", "Unconfined", "Localhost")},
}
CONTAINER = {
    "name!": TEXT, "image!": TEXT, "command": [TEXT], "args": [TEXT],
    "securityContext": {"allowPrivilegeEscalation": FLAG, "capabilities": {"drop": [TEXT], "add": [TEXT]}},
    "readinessProbe": {"tcpSocket": {"port!": COUNT}, "initialDelaySeconds": COUNT},
    "volumeMounts": [{"name!": TEXT, "mountPath!": TEXT}],
    "resources": {"limits": {"*": QUANTITY}, "requests": {"*": QUANTITY}},
}
VOLUME = {
    "name!": TEXT,
    "persistentVolumeClaim": {"claimName!": TEXT},
    "emptyDir": {"medium": one_of("", "Memory"), "sizeLimit": QUANTITY},
}
REPLICA = {
    "replicas": COUNT,
    "restartPolicy": one_of("Never", "OnFailure"),  # the operator's validation refuses others
    "template!": {"metadata": {"labels": {"*": TEXT}, "annotations": {"*": TEXT}},
                  "spec!": {"securityContext": SECURITY_OF_POD, "containers!": [CONTAINER], "volumes": [VOLUME]}},
}
MPIJOB = {
    "apiVersion!": one_of("kubeflow.org/v2beta1"),
    "kind!": one_of("MPIJob"),
    "metadata!": {"name!": TEXT, "namespace": TEXT, "labels": {"*": TEXT}},
    "spec!": {
        "slotsPerWorker": COUNT,
        "sshAuthMountPath": TEXT,
        "launcherCreationPolicy": one_of("AtStartup", "WaitForWorkersReady"),
        "mpiImplementation": one_of("OpenMPI", "Intel", "MPICH"),
        "runLauncherAsWorker": FLAG,
        "runPolicy": {
            "cleanPodPolicy": one_of("None", "Running", "All"), "ttlSecondsAfterFinished": COUNT,
            "activeDeadlineSeconds": COUNT, "backoffLimit": COUNT, "suspend": FLAG,
        },
        "mpiReplicaSpecs!": {"Launcher!": REPLICA, "Worker!": REPLICA},
    },
}


def check(value, rule, path):
    """Yields a line for each fault of value, which must be as rule says."""
    if isinstance(rule, dict):
        if not isinstance(value, dict):
            yield f"{path}: not a mapping"
            return
        known = {name.rstrip("!"): sub for name, sub in rule.items()}
        yield from (f"{path}.{name[:-1]}: missing" for name in rule if name.endswith("!") and name[:-1] not in value)
        for name, part in value.items():
            if name not in known and "*" not in known:
                yield f"{path}.{name}: unknown field"
            else:
                yield from check(part, known.get(name, known.get("*")), f"{path}.{name}")
    elif isinstance(rule, list):
        if not isinstance(value, list):
            yield f"{path}: not a list"
            return
        for i, part in enumerate(value):
            yield from check(part, rule[0], f"{path}[{i}]")
    elif isinstance(rule, (type, tuple)):
        if not isinstance(value, rule) or (isinstance(value, bool) and rule is not FLAG):
            yield f"{path}: wrong type: {value!r}"
    elif not rule(value):
        yield f"{path}: not allowed: {value!r}"


def check_volumes(job):
    """Yields a line for each mount without a volume."""
    for role, replica in job["spec"]["mpiReplicaSpecs"].items():
        pod = replica["template"]["spec"]
        names = {volume["name"] for volume in pod.get("volumes", [])}
        for container in pod["containers"]:
            for mount in container.get("volumeMounts", []):
                if mount["name"] not in names:
                    yield f"{role}: volume {mount['name']} is mounted, but not defined"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        job = yaml.safe_load(file)
    faults = list(check(job, MPIJOB, "MPIJob"))
    if not faults:
        faults = list(check_volumes(job))
        if job["spec"]["mpiReplicaSpecs"]["Launcher"].get("replicas", 1) != 1:
            faults.append("Launcher.replicas: must be 1")
    print("\n".join(faults))
    return 1 if faults else 0


sys.exit(main())
