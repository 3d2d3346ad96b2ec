#!/usr/bin/env python3
"""Makes run.wandb.gz, beside this script: the log of a run, written by wandb's own DataStore, with one
record of each kind that Trireme writes. tests/unit/test_wandb.c writes the same records and compares the
bytes. Run it with wandb 0.22.3 (PyPI) installed; later versions have no DataStore."""
import gzip
import os
import tempfile

import wandb
from wandb.proto import wandb_internal_pb2 as pb
from wandb.sdk.internal.datastore import DataStore

wandb._set_internal_process(disable=True)


def items(kind, pairs):
    return [kind(key=key, value_json=json) for key, json in pairs]


def history(step, pairs):
    return pb.Record(history=pb.HistoryRecord(
        item=items(pb.HistoryItem, pairs), step=pb.HistoryStep(num=step)))


CONFIG = [("lr", "0.5"), ("steps", "2000"), ("preset", '"tiny"'), ("data", '"a \\"b\\" \\\\ \\u0009\ufffd"')]

run = pb.RunRecord(run_id="0123abcd", project="trireme", display_name="run 1", host="h1",
                   config=pb.ConfigRecord(update=items(pb.ConfigItem, CONFIG)))
run.start_time.seconds = 1763300000
run.start_time.nanos = 500000000
environment = pb.EnvironmentRecord(os="Linux 6.1", program="trireme", host="h1", cpu_count=4, cpu_count_logical=4,
                                   memory=pb.MemoryInfo(total=1 << 34), writer_id="0123abcd")
environment.started_at.seconds = 1763300000
stats = pb.StatsRecord(item=items(pb.StatsItem, [("cpu", "12.5"), ("gpu.0.powerWatts", "612")]))
stats.timestamp.seconds = 1763300001
stats.timestamp.nanos = 250000000
runtime = pb.SummaryItem(nested_key=["_wandb", "runtime"], value_json="12")

RECORDS = [
    pb.Record(header=pb.HeaderRecord(
        version_info=pb.VersionInfo(producer="trireme 1.0", min_consumer="0.40.0"))),
    pb.Record(run=run),
    pb.Record(environment=environment),
    history(300, [("train/loss", "2.5"), ("bad", "NaN"), ("_step", "300")]),
    pb.Record(summary=pb.SummaryRecord(update=[runtime] + items(pb.SummaryItem, [("train/loss", "2.5")]))),
    pb.Record(stats=stats),
    pb.Record(config=pb.ConfigRecord(update=items(pb.ConfigItem, [("lr", "0.25")]))),
    # Leaves 3 bytes of the first block, which are zero.
    history(301, [("long", "x" * 32290)]),
    # Three fragments.
    history(1 << 40, [("long", "y" * 66000)]),
    pb.Record(exit=pb.RunExitRecord(runtime=12)),
    pb.Record(exit=pb.RunExitRecord(exit_code=1)),
]

folder = os.path.dirname(os.path.abspath(__file__))
with tempfile.TemporaryDirectory() as scratch:
    path = os.path.join(scratch, "run.wandb")
    store = DataStore()
    store.open_for_write(path)
    for record in RECORDS:
        store.write(record)
    store.close()
    with open(path, "rb") as plain, open(os.path.join(folder, "run.wandb.gz"), "wb") as packed:
        with gzip.GzipFile("", "wb", 9, packed, 0) as out:
            out.write(plain.read())
