#!/usr/bin/env python3
"""Makes events.bin, beside this script: an event file written by TensorBoard's own writer, with
one record of each kind that Trireme writes. tests/unit/test_tfevents.c writes the same records
and compares the bytes. Run it with tensorboard (PyPI) installed."""
import os

from tensorboard.compat.proto import event_pb2, histogram_pb2, summary_pb2, tensor_pb2
from tensorboard.compat.proto import tensor_shape_pb2, types_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.plugins.text import metadata as text_metadata
from tensorboard.summary.writer.record_writer import RecordWriter

Value = summary_pb2.Summary.Value


def text_table(cells):
    dims = [tensor_shape_pb2.TensorShapeProto.Dim(size=n) for n in (len(cells), len(cells[0]))]
    return tensor_pb2.TensorProto(
        dtype=types_pb2.DT_STRING,
        tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=dims),
        string_val=[c.encode() for row in cells for c in row],
    )


def hparams(pairs, start):
    info = plugin_data_pb2.SessionStartInfo(start_time_secs=start)
    for name, value in pairs:
        if isinstance(value, str):
            info.hparams[name].string_value = value
        else:
            info.hparams[name].number_value = value
    data = plugin_data_pb2.HParamsPluginData(session_start_info=info)
    return hparams_metadata.create_summary_metadata(data)


def summary(step, time, *values):
    return event_pb2.Event(wall_time=time, step=step, summary=summary_pb2.Summary(value=values))


EVENTS = [
    event_pb2.Event(
        wall_time=1.5,
        file_version="brain.Event:2",
        source_metadata=event_pb2.SourceMetadata(writer="trireme"),
    ),
    event_pb2.Event(
        wall_time=2.5, step=1, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    ),
    # One entry per record: the order of a map's entries is not defined.
    summary(0, 3.0, Value(tag=hparams_metadata.SESSION_START_INFO_TAG,
                          tensor=hparams_metadata.NULL_TENSOR,
                          metadata=hparams([("lr", 0.5)], 3.0))),
    summary(0, 3.0, Value(tag=hparams_metadata.SESSION_START_INFO_TAG,
                          tensor=hparams_metadata.NULL_TENSOR,
                          metadata=hparams([("preset", "tiny")], 3.0))),
    summary(300, 4.25, Value(tag="train/loss", simple_value=2.5), Value(tag="epoch", simple_value=0)),
    summary(2**40, 5.0, Value(
        tag="weights/a",
        histo=histogram_pb2.HistogramProto(
            min=-1, max=2, num=4, sum=0, sum_squares=6.5,
            bucket_limit=[-0.5, 0.5, 2], bucket=[1, 2, 1]))),
    summary(7, 6.0, Value(
        tag="valid/samples",
        tensor=text_table([["source", "output"], ["Grüße", ""]]),
        metadata=text_metadata.create_summary_metadata(None, None))),
    # A message longer than 127 and than 16,383 bytes, so that lengths take more than one byte.
    summary(8, 7.0, Value(
        tag="long",
        tensor=text_table([["x" * 200], ["y" * 20000]]),
        metadata=text_metadata.create_summary_metadata(None, None))),
]

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "events.bin")
with open(path, "wb") as f:
    writer = RecordWriter(f)
    for event in EVENTS:
        writer.write(event.SerializeToString())
