/* Aliases of the options in options.c: former names of Trireme's own options, and names from
 * fairseq, Marian, Hugging Face, OpenNMT, SentencePiece, sacreBLEU, torchrun and mpirun. A foreign
 * name with exactly the same meaning is accepted. A name with another meaning is an error that says what
 * to pass instead. 'trireme help aliases' and the man page print this table. */
#include "cmd/cmd.h"

/* columns: commands, alias, option, program from which the alias comes */
#define FORMER(commands, alias, name) \
  { commands, alias, name, NULL, OPT_FORMER, NULL }
#define ALIAS(commands, alias, name, origin) \
  { commands, alias, name, NULL, origin, NULL }
/* A flag that is an alias of an option with a given value. */
#define SETS(commands, alias, name, value, origin) \
  { commands, alias, name, value, origin, NULL }
#define HINT(commands, alias, origin, hint) \
  { commands, alias, NULL, NULL, origin, hint }

#define FAIRSEQ "fairseq"
#define MARIAN  "Marian"
#define HF      "Hugging Face"
#define ONMT    "OpenNMT"
#define SPM     "SentencePiece"
#define SACRE   "sacreBLEU"
#define TORCH   "torchrun"
#define MPIRUN  "mpirun"

const OptAlias cmd_aliases[] = {
    /* Aliases: former names of our own options */
    FORMER("prepare", "sample", "tokenizer-sample"),
    FORMER("train", "width", "d-model"),
    FORMER("train", "feed-width", "ffn-dim"),
    FORMER("train", "norm", "layer-norm"),
    FORMER("train", "positions", "position-embedding"),
    FORMER("train", "tie", "tie-embeddings"),
    FORMER("train", "time", "max-time"),
    FORMER("train", "lr-policy", "lr-scheduler"),
    FORMER("train", "warmup", "warmup-steps"),
    FORMER("train", "lr-least", "min-lr"),
    FORMER("train", "lr-rate", "lr-decay-rate"),
    FORMER("train", "lr-pieces", "lr-milestones"),
    FORMER("train", "ema", "ema-decay"),
    FORMER("train", "clip", "clip-norm"),
    FORMER("train", "keep", "keep-checkpoints"),
    FORMER("train", "average", "average-checkpoints"),
    FORMER("train", "exchange", "allreduce-dtype"),
    FORMER("train bench", "collectives", "allreduce-transport"),
    FORMER("train", "silence", "rank-timeout"),
    FORMER("train translate bench", "beam", "beam-size"),
    FORMER("train translate", "alpha", "length-penalty"),
    FORMER("bench", "largest", "max-bytes"),
    FORMER("score", "metric", "metrics"),
    FORMER("score", "sentence", "sentence-level"),
    FORMER("score", "paired", "paired-bs"),

    /* Aliases: text and tokenizer */
    ALIAS("prepare", "train-sets", "train", MARIAN),
    ALIAS("prepare", "valid-sets", "valid", MARIAN),
    HINT("prepare", "trainpref", FAIRSEQ,
         "it is a prefix of two file names; pass both files: --train train.en train.de"),
    HINT("prepare", "validpref", FAIRSEQ,
         "it is a prefix of two file names; pass both files: --valid valid.en valid.de"),
    HINT("prepare", "testpref", FAIRSEQ,
         "it is a prefix of two file names; pass both files: --test test.en test.de"),
    ALIAS("prepare", "destdir", "out", FAIRSEQ),
    ALIAS("prepare", "output-dir", "out", HF),
    ALIAS("prepare", "workers", "threads", FAIRSEQ),
    ALIAS("prepare", "num-threads", "threads", SPM),
    ALIAS("prepare", "sentencepiece-model", "tokenizer", FAIRSEQ),
    ALIAS("prepare", "model-type", "tokenizer-type", SPM),
    HINT("prepare", "model-prefix", SPM,
         "the tokenizer is stored in the data set: pass --out DIR"),
    HINT("prepare", "input-sentence-size", SPM,
         "it counts sentences, --tokenizer-sample counts pairs, of two sentences each"),
    HINT("prepare", "joined-dictionary", FAIRSEQ,
         "source and target always share one vocabulary; leave it out"),
    HINT("prepare", "max-sentence-length", SPM,
         "it counts bytes; --max-tokens counts tokens and --max-words counts words"),

    /* Aliases: model */
    HINT("train", "arch", FAIRSEQ,
         "pass --preset tiny, small, base or big, and change single sizes with --d-model, "
         "--ffn-dim, --heads and --encoder-layers"),
    ALIAS("train", "dim-emb", "d-model", MARIAN),
    ALIAS("train", "hidden-size", "d-model", ONMT),
    ALIAS("train", "encoder-embed-dim", "d-model", FAIRSEQ),
    HINT("train", "decoder-embed-dim", FAIRSEQ,
         "encoder and decoder have the same dimension, --d-model"),
    HINT("train", "word-vec-size", ONMT, "embeddings have the model dimension, --d-model"),
    ALIAS("train", "transformer-dim-ffn", "ffn-dim", MARIAN),
    ALIAS("train", "transformer-ff", "ffn-dim", ONMT),
    ALIAS("train", "encoder-ffn-embed-dim", "ffn-dim", FAIRSEQ),
    HINT("train", "decoder-ffn-embed-dim", FAIRSEQ,
         "encoder and decoder have the same inner dimension, --ffn-dim"),
    ALIAS("train", "transformer-heads", "heads", MARIAN),
    HINT("train", "encoder-attention-heads", FAIRSEQ,
         "--heads sets the heads of the encoder and of the decoder"),
    HINT("train", "decoder-attention-heads", FAIRSEQ,
         "--heads sets the heads of the encoder and of the decoder"),
    ALIAS("train", "enc-depth", "encoder-layers", MARIAN),
    ALIAS("train", "dec-depth", "decoder-layers", MARIAN),
    ALIAS("train", "enc-layers", "encoder-layers", ONMT),
    ALIAS("train", "dec-layers", "decoder-layers", ONMT),
    HINT("train", "encoder-normalize-before", FAIRSEQ,
         "pass --layer-norm pre, for encoder and decoder (the default)"),
    HINT("train", "decoder-normalize-before", FAIRSEQ,
         "pass --layer-norm pre, for encoder and decoder (the default)"),
    HINT("train", "transformer-preprocess", MARIAN,
         "pass --layer-norm pre (n before each sublayer) or post (n after it)"),
    HINT("train", "transformer-postprocess", MARIAN,
         "pass --layer-norm pre (n before each sublayer) or post (n after it)"),
    ALIAS("train", "activation-fn", "activation", FAIRSEQ),
    ALIAS("train", "transformer-ffn-activation", "activation", MARIAN),
    ALIAS("train", "pos-ffn-activation-fn", "activation", ONMT),
    HINT("train", "encoder-learned-pos", FAIRSEQ,
         "pass --position-embedding learned, for encoder and decoder"),
    HINT("train", "decoder-learned-pos", FAIRSEQ,
         "pass --position-embedding learned, for encoder and decoder"),
    SETS("train", "share-all-embeddings", "tie-embeddings", "all", FAIRSEQ),
    SETS("train", "tied-embeddings-all", "tie-embeddings", "all", MARIAN),
    SETS("train", "share-decoder-input-output-embed", "tie-embeddings", "decoder", FAIRSEQ),
    SETS("train", "tied-embeddings", "tie-embeddings", "decoder", MARIAN),
    HINT(
        "train", "tied-embeddings-src", MARIAN,
        "source and target embeddings are tied together with the output: --tie-embeddings all"),
    HINT(
        "train", "share-embeddings", ONMT,
        "source and target embeddings are tied together with the output: --tie-embeddings all"),
    HINT("train", "share-decoder-embeddings", ONMT, "pass --tie-embeddings decoder"),
    ALIAS("train", "relu-dropout", "activation-dropout", FAIRSEQ),
    ALIAS("train", "transformer-dropout-attention", "attention-dropout", MARIAN),
    ALIAS("train", "transformer-dropout-ffn", "activation-dropout", MARIAN),
    HINT("train", "transformer-dropout", MARIAN,
         "pass --residual-dropout P and --embed-dropout P; --dropout P sets all four kinds"),

    /* Aliases: masked language models */
    ALIAS("train", "mlm-probability", "mask-rate", HF),
    ALIAS("train", "mask-prob", "mask-rate", FAIRSEQ),

    /* Aliases: batches and steps */
    ALIAS("train translate", "max-tokens", "batch-tokens", FAIRSEQ),
    HINT("train", "mini-batch-fit", MARIAN, "pass --batch-tokens auto"),
    HINT("train", "mini-batch-words", MARIAN,
         "it counts words of the source; --batch-tokens N counts tokens on each side of one "
         "micro-batch"),
    HINT("train translate", "mini-batch", MARIAN,
         "it counts sentences; --batch-tokens N counts tokens on each side of a batch"),
    HINT("train translate", "batch-size", FAIRSEQ ", " ONMT,
         "it counts sentences (in OpenNMT what --batch_type says); --batch-tokens N counts "
         "tokens "
         "on each side of a batch"),
    HINT("train translate", "max-sentences", FAIRSEQ,
         "it counts sentences; --batch-tokens N counts tokens on each side of a batch"),
    HINT("train translate", "batch-type", ONMT,
         "batches are always counted in tokens; leave it out"),
    HINT("train", "per-device-train-batch-size", HF,
         "it counts sentences on each rank; --batch-tokens N counts tokens on each side of a "
         "micro-batch"),
    HINT(
        "train", "update-freq", FAIRSEQ,
        "it counts micro-batches of each rank; --micro-batches counts those of all ranks: pass "
        "--micro-batches N * ranks"),
    HINT(
        "train", "gradient-accumulation-steps", HF,
        "it counts micro-batches of each rank; --micro-batches counts those of all ranks: pass "
        "--micro-batches N * ranks"),
    HINT(
        "train", "accum-count", ONMT,
        "it counts micro-batches of each rank; --micro-batches counts those of all ranks: pass "
        "--micro-batches N * ranks"),
    HINT(
        "train", "optimizer-delay", MARIAN,
        "it counts micro-batches of each rank; --micro-batches counts those of all ranks: pass "
        "--micro-batches N * ranks"),
    ALIAS("train", "max-update", "steps", FAIRSEQ),
    ALIAS("train", "max-steps", "steps", HF),
    ALIAS("train", "train-steps", "steps", ONMT),
    ALIAS("train", "after-batches", "steps", MARIAN),
    ALIAS("train", "max-epoch", "epochs", FAIRSEQ),
    ALIAS("train", "num-train-epochs", "epochs", HF),
    ALIAS("train", "after-epochs", "epochs", MARIAN),
    HINT("train", "after", MARIAN, "pass --epochs N for Ne, --steps N for Nu"),
    HINT("train", "stop-time-hours", FAIRSEQ, "pass --max-time Nh; it counts this call alone"),

    /* Aliases: learning rate and optimizer */
    ALIAS("train", "lr-scheduler-type", "lr-scheduler", HF),
    ALIAS("train", "learning-rate", "lr", HF ", " ONMT),
    ALIAS("train", "learn-rate", "lr", MARIAN),
    ALIAS("train", "warmup-updates", "warmup-steps", FAIRSEQ),
    ALIAS("train", "lr-warmup", "warmup-steps", MARIAN),
    HINT("train", "warmup-ratio", HF, "pass the number of steps, --warmup-steps N"),
    HINT("train", "lr-decay-inv-sqrt", MARIAN,
         "pass --lr-scheduler inverse-sqrt --warmup-steps N"),
    HINT("train", "decay-method", ONMT, "pass --lr-scheduler noam or inverse-sqrt"),
    HINT("train", "total-num-update", FAIRSEQ,
         "it includes the warm-up; --lr-decay-steps counts from the end of the warm-up"),
    ALIAS("train", "end-learning-rate", "min-lr", FAIRSEQ),
    ALIAS("train", "power", "lr-power", FAIRSEQ),
    HINT("train", "optim", HF ", " ONMT, "pass --optimizer adam, adamw, sgd or novograd"),
    ALIAS("train", "adam-beta1", "beta1", HF ", " ONMT),
    ALIAS("train", "adam-beta2", "beta2", HF ", " ONMT),
    ALIAS("train", "adam-epsilon", "epsilon", HF),
    ALIAS("train", "adam-eps", "epsilon", FAIRSEQ),
    HINT("train", "adam-betas", FAIRSEQ, "pass --beta1 0.9 --beta2 0.98"),
    HINT("train", "optimizer-params", MARIAN, "pass --beta1 B --beta2 B --epsilon E"),
    HINT("train", "exponential-smoothing", MARIAN,
         "it is 1 minus the decay: pass --ema-decay 0.9999 for 0.0001"),
    ALIAS("train", "max-grad-norm", "clip-norm", HF ", " ONMT),
    HINT("train", "criterion", FAIRSEQ, "the loss is cross-entropy with --label-smoothing P"),
    HINT("train", "cost-type", MARIAN, "the loss is the mean cross-entropy of a target token"),
    HINT("train", "cost-scaling", MARIAN, "pass --loss-scale dynamic"),
    ALIAS("train", "label-smoothing-factor", "label-smoothing", HF),

    /* Aliases: validation, checkpoints, log */
    ALIAS("train", "output-dir", "run", HF),
    HINT("train", "save-dir", FAIRSEQ, "pass --run DIR; checkpoints are in DIR/checkpoints"),
    HINT("train", "save-model", ONMT, "pass --run DIR; checkpoints are in DIR/checkpoints"),
    HINT(
        "train", "train-sets", MARIAN,
        "train reads a data set: 'trireme prepare --train SRC TGT --out DIR', then --data DIR"),
    HINT(
        "train", "dataset-name", HF,
        "train reads a data set: 'trireme prepare --train SRC TGT --out DIR', then --data DIR"),
    HINT("train", "model", MARIAN, "it is the file to write; pass --run DIR"),
    ALIAS("train", "validate-interval-updates", "valid-every", FAIRSEQ),
    ALIAS("train", "eval-steps", "valid-every", HF),
    ALIAS("train", "valid-freq", "valid-every", MARIAN),
    ALIAS("train", "valid-steps", "valid-every", ONMT),
    HINT("train", "validate-interval", FAIRSEQ, "it counts epochs; --valid-every counts steps"),
    ALIAS("train", "save-interval-updates", "save-every", FAIRSEQ),
    ALIAS("train", "save-steps", "save-every", HF),
    ALIAS("train", "save-freq", "save-every", MARIAN),
    ALIAS("train", "save-checkpoint-steps", "save-every", ONMT),
    HINT("train", "save-interval", FAIRSEQ, "it counts epochs; --save-every counts steps"),
    HINT("train", "tensorboard-logdir", FAIRSEQ,
         "event files are written to the run directory, --run"),
    HINT("train", "report-to", HF,
         "TensorBoard event files are written to the run directory, unless --tensorboard no; "
         "--wandb offline writes the run for Weights & Biases"),
    ALIAS("train", "log-interval", "log-every", FAIRSEQ),
    ALIAS("train", "logging-steps", "log-every", HF),
    ALIAS("train", "disp-freq", "log-every", MARIAN),
    ALIAS("train", "report-every", "log-every", ONMT),
    ALIAS("train", "early-stopping", "patience", MARIAN ", " ONMT),
    ALIAS("train", "early-stopping-patience", "patience", HF),
    ALIAS("train", "keep-interval-updates", "keep-checkpoints", FAIRSEQ),
    ALIAS("train", "keep-checkpoint", "keep-checkpoints", ONMT),
    HINT("train", "save-total-limit", HF,
         "it includes the best checkpoint; --keep-checkpoints counts those beside the best"),
    HINT("train", "keep-last-epochs", FAIRSEQ,
         "it counts checkpoints of epochs; --keep-checkpoints N keeps the last N of "
         "--save-every"),
    HINT("train", "restore-file", FAIRSEQ, "pass --run DIR --resume"),
    ALIAS("train", "autoresume", "auto-resume", "Composer"),
    ALIAS("train", "overlap-comm", "overlap", "DeepSpeed"),
    SETS("train", "overlap-grad-reduce", "overlap", "yes", "Megatron-LM"),
    HINT("train", "no-restore-training", MARIAN,
         "a run is continued only with --resume or --auto-resume; leave them out"),
    HINT("train", "train-from", ONMT, "pass --run DIR --resume"),
    HINT("train", "resume-from-checkpoint", HF, "pass --run DIR --resume"),

    /* Aliases: beam search and sampling */
    ALIAS("translate", "src", "input", ONMT),
    HINT("translate", "path", FAIRSEQ, "pass --model DIR, a run or a checkpoint"),
    HINT("translate", "models", MARIAN,
         "pass --model DIR, one model; ensembles are not available"),
    HINT("translate classify", "model-name-or-path", HF,
         "pass --model DIR, a run or a checkpoint"),
    ALIAS("train translate bench", "num-beams", "beam-size", HF),
    HINT("train translate", "lenpen", FAIRSEQ,
         "it divides by length^P; --length-penalty P divides by ((5 + length) / 6)^P: search "
         "for "
         "the best value again, from 0.6"),
    HINT("train translate", "normalize", MARIAN,
         "it divides by length^P; --length-penalty P divides by ((5 + length) / 6)^P: search "
         "for "
         "the best value again, from 0.6"),
    HINT("translate", "max-len-a", FAIRSEQ,
         "the longest output is 1 * source + --extra-length, or --max-length"),
    HINT("translate", "max-len-b", FAIRSEQ,
         "the longest output is 1 * source + --extra-length, or --max-length"),
    HINT("translate", "max-length-factor", MARIAN,
         "the longest output is 1 * source + --extra-length, or --max-length"),
    ALIAS("translate", "max-new-tokens", "max-length", HF),
    ALIAS("translate", "num-return-sequences", "nbest", HF),
    /* Marian's n-best is a flag without a number; the help of --nbest explains the
     * difference. */
    ALIAS("translate", "n-best", "nbest", ONMT),
    ALIAS("translate", "do-sample", "sample", HF),
    ALIAS("translate", "sampling", "sample", FAIRSEQ),
    ALIAS("translate", "sampling-topk", "top-k", FAIRSEQ),
    HINT("translate", "sampling-topp", FAIRSEQ, "it is not available; pass --top-k K"),
    HINT("translate", "top-p", HF, "it is not available; pass --top-k K"),
    HINT("translate", "output-sampling", MARIAN,
         "pass --sample, and --top-k K or --temperature T"),
    HINT("translate", "remove-bpe", FAIRSEQ, "the output is plain text already; leave it out"),
    ALIAS("translate", "with-score", "scores", ONMT),

    /* Aliases: devices and ranks */
    SETS("train translate classify bench", "fp16", "precision", "fp16",
         FAIRSEQ ", " HF ", " MARIAN),
    SETS("train translate classify bench", "bf16", "precision", "bf16", FAIRSEQ ", " HF),
    SETS("train translate classify bench", "tf32", "precision", "tf32", HF),
    SETS("train translate classify bench", "cpu", "device", "cpu", FAIRSEQ),
    SETS("train translate classify bench", "use-cpu", "device", "cpu", HF),
    SETS("train translate classify bench", "no-cuda", "device", "cpu", HF),
    HINT("train translate", "cpu-threads", MARIAN, "pass --device cpu --threads N"),
    HINT("train translate", "devices", MARIAN,
         "each rank takes one GPU: start as many ranks, mpirun -n N; --device cuda:N is one "
         "GPU"),
    HINT("train", "gpu-ranks", ONMT,
         "each rank takes one GPU: start as many ranks, mpirun -n N; --device cuda:N is one "
         "GPU"),
    HINT("train", "nproc-per-node", TORCH,
         "start ranks with 'trireme launch', whose options come before the word train"),
    HINT("launch", "rdzv-backend", TORCH,
         "there is one way to meet, with a shared key: leave it out and pass --rdzv-endpoint "
         "HOST:PORT and --rdzv-key FILE"),
    HINT("launch", "master-addr", TORCH,
         "pass --rdzv-endpoint HOST:PORT, the same on every machine"),
    HINT("launch", "master-port", TORCH,
         "pass --rdzv-endpoint HOST:PORT, the same on every machine"),
    HINT("launch", "node-rank", TORCH,
         "leave it out: the machine with the address of --rdzv-endpoint is the head, and the "
         "others are numbered as they join"),
    HINT("launch", "np", MPIRUN, "pass --nproc-per-node N, the ranks on each machine"),
    HINT("launch", "n", MPIRUN, "pass --nproc-per-node N, the ranks on each machine"),
    HINT("launch", "host", MPIRUN, "pass --hosts a:2,b:2"),
    HINT("launch", "H", MPIRUN, "pass --hosts a:2,b:2"),
    HINT("train", "distributed-world-size", FAIRSEQ, "start ranks with mpirun -n N or srun"),
    HINT("train", "num-workers", FAIRSEQ, "one thread reads batches ahead; leave it out"),
    HINT("train", "ddp-backend", FAIRSEQ ", " HF,
         "pass --allreduce-transport auto, nccl or host"),
    HINT("train", "distributed-backend", FAIRSEQ,
         "pass --allreduce-transport auto, nccl or host"),
    HINT("train", "bucket-cap-mb", FAIRSEQ, "pass --bucket-size NM"),
    HINT("train", "ddp-bucket-cap-mb", HF, "pass --bucket-size NM"),
    HINT("train", "ddp-timeout", HF,
         "it is in seconds and limits a collective; --rank-timeout limits the time without "
         "progress of a rank"),
    HINT("train", "zero-sharding", FAIRSEQ, "pass --shard-optimizer"),

    /* Aliases: scores */
    ALIAS("score", "sys", "hyp", FAIRSEQ),
    ALIAS("score", "input", "hyp", SACRE),
    ALIAS("score", "confidence-n", "resamples", SACRE),
    ALIAS("score", "paired-bs-n", "resamples", SACRE),
    HINT("score", "format", SACRE, "pass --json; the default is text"),
    HINT("score", "score-only", SACRE, "pass --json and read \"score\""),
    {0},
};
