#!/bin/sh
# How this folder was made: with the last program that wrote format 1, version 0.1.0 ($1; its
# dump_batches is $2), and SentencePiece's spm_train. The tokenizer has no normalisation rules, so
# that it is small.
set -eu
perl -e 'srand 5; for (1 .. 300) { print join(" ", map { join "", map { chr 97 + int rand 8 } 1 .. 1 + int rand 4 } 1 .. 2 + int rand 5), "\n" }' > train.a
tr a-h h-pa-g < train.a > train.b
head -n 12 train.a > valid.a
head -n 12 train.b > valid.b
cat train.a train.b > both
spm_train --input=both --model_prefix=tiny --vocab_size=40 --model_type=bpe --normalization_rule_name=identity \
  --pad_id=0 --eos_id=1 --bos_id=2 --unk_id=3 --minloglevel=2
"$1" prepare --train train.a train.b --valid valid.a valid.b --tokenizer tiny.model --shard-size 4k \
  --source-lang aa --target-lang bb --out set
"$2" set 128 7 2 > batches.txt
rm both tiny.model tiny.vocab
