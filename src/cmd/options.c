/* The table of all options. The parser, the help, the man page, shell completion and config
 * files use it; aliases.c has other names of the options. Columns of a row: name, type, value
 * in the help, default, range, choices, number of words, whether it can be repeated, commands,
 * group, help. */
#include "base/opt_rows.h"
#include "cmd/option_table.h"

#define G_DATA  "Text"
#define G_CLEAN "Cleaning"
#define G_TOK   "Tokenizer"
#define G_OUT   "Output"
#define G_RUN   OPT_COMMON
#define G_HOSTS "Machines"
#define G_FETCH "Recipes and downloads"

const OptSpec cmd_general_options[] = {
    /* Options of prepare: text */
    CHOICE("task", "NAME", NULL, "", "prepare", G_DATA,
           "What a model learns from the data set"),
    TEXTS(
        "train", "SRC TGT", 2, "prepare", G_DATA,
        "Training text, one sentence per line: two files, or one with a tab between the sides; "
        "plain, .gz or .zst, '-' is standard input"),
    PAIR("valid", "prepare", G_DATA, "Validation text; also kept raw, for BLEU"),
    PAIR("test", "prepare", G_DATA, "Test text; also kept raw"),
    TEXT("source-lang", "CODE", "en", "prepare", G_DATA,
         "Language code of the source side; stored in the data set"),
    TEXT("target-lang", "CODE", "de", "prepare", G_DATA, "Language code of the target side"),
    CHOICE("bad-utf8", "WHAT", "stop", "stop|drop", "prepare", G_DATA,
           "A line that is not UTF-8 is an error (stop), or its pair is dropped and counted "
           "(drop)"),

    /* Options of prepare: cleaning */
    COUNT("min-words", "N", "1", 1, 65535, "prepare", G_CLEAN,
          "Drop pairs with fewer words on either side"),
    COUNT("max-words", "N", "80", 1, 65535, "prepare", G_CLEAN,
          "Drop pairs with more words on either side"),
    REAL("max-ratio", "R", "9", 1, 0, "prepare", G_CLEAN,
         "Drop pairs whose word counts differ by more than this factor"),
    COUNT("max-word-length", "N", "1000", 1, 0, "prepare", G_CLEAN,
          "Drop pairs with a longer word, in characters"),
    COUNT(
        "max-tokens", "N", "255", 1, 4095, "prepare", G_CLEAN,
        "Drop pairs with more tokens on either side; of texts, classify cuts longer ones, and "
        "mlm divides them"),
    FLAG("dedup", "prepare", G_CLEAN, "Drop pairs that are equal to an earlier one"),

    /* Options of prepare: tokenizer */
    INPUT("tokenizer", "FILE", NULL, "prepare", G_TOK,
          "Use this SentencePiece .model; without it one is trained on the training text. With "
          "--task classify or mlm also the directory of a model, with vocab.txt, "
          "tokenizer.model, or "
          "RoBERTa's tokenizer.json or vocab.json and merges.txt"),
    CHOICE("tokenizer-type", "TYPE", "bpe", "bpe|unigram", "prepare", G_TOK,
           "Kind of SentencePiece model to train"),
    COUNT(
        "vocab-size", "N", "32768", 16, 1000000, "prepare", G_TOK,
        "Size of the vocabulary to train: SentencePiece, which both languages share; classify "
        "and mlm train WordPiece, and only if this is given"),
    COUNT("vocab-size", "N", "32768", 16, 1000000, "bench doctor plan", G_TOK,
          "Size of the vocabulary, which both languages share"),
    REAL("character-coverage", "P", "1.0", 0.5, 1, "prepare", G_TOK,
         "Share of the characters that the tokenizer must cover"),
    COUNT("tokenizer-sample", "PAIRS", "500k", 1, 100e6, "prepare", G_TOK,
          "Random pairs on which the tokenizer is trained"),

    /* Options of prepare: recipes */
    NAMED("recipe", "NAME", NULL,
          "demo|multi30k-en-de|tatoeba-en-de|europarl-en-de|wmt16-en-de", "prepare", G_FETCH,
          "A known data set: demo, multi30k-en-de, tatoeba-en-de, europarl-en-de or "
          "wmt16-en-de; or a folder with a recipe.conf"),
    TEXT("source-dir", "DIR", NULL, "prepare", G_FETCH,
         "Directory that holds files of the recipe; only the others are downloaded"),
    TEXT("download-dir", "DIR", NULL, "prepare", G_FETCH,
         "Directory for downloads (default ~/.cache/trireme/NAME)"),
    TEXT("mirror", "URL", NULL, "prepare", G_FETCH, "Download from this address first"),
    COUNT("demo-pairs", "N", "200k", 100, 20e6, "prepare", G_FETCH,
          "Training pairs that the demo recipe generates"),

    /* Options of prepare: output */
    TEXT("out", "DIR", NULL, "prepare", G_OUT,
         "Directory of the data set to write; it must not exist"),
    TEXT("convert", "DIR", NULL, "prepare", G_OUT,
         "Convert this data set of format 1 to format 2 instead of preparing text"),
    BYTES("shard-size", "SIZE", "64M", 4096, 1073741824.0, "prepare", G_OUT,
          "Size of a shard file"),
    COUNT("window-pairs", "N", "0", 0, 2147483648.0, "prepare", G_OUT,
          "Shuffle training pairs within windows of about N pairs (whole shards); 0 is one "
          "window, which shuffles all pairs"),
    FLAG("resume", "prepare train", G_RUN, "Continue work that was stopped"),
    COUNT("seed", "N", "1", 0, 0, "prepare inspect bench train translate", G_RUN,
          "Random seed"),
    COUNT("threads", "N", "0", 0, 1024, "prepare bench train translate classify", G_RUN,
          "Threads; 0 is one for each core that the process may use"),

    /* Options of train and translate */
    TEXT("data", "DIR", NULL, "train", "What to train", "The data set, written by prepare"),
    TEXT("run", "DIR", NULL, "train", "What to train",
         "Directory of the run: checkpoints, log, metrics. It must not exist, except with "
         "--resume or --auto-resume"),
    /* Default and choices of these rows, and of --task of prepare, are filled in from the tables of tasks
     * and families. */
    CHOICE("task", "NAME", NULL, "", "train", "What to train",
           "What the model learns; if not given, what the data set was prepared for"),
    CHOICE("task", "NAME", NULL, "", "inspect", "What to show",
           "The task that the data set is for (default: as the data set says)"),
    CHOICE(
        "preset", "NAME", NULL, "", "train", "Model",
        "Sizes of the model; for texts by default bert-base on a GPU and bert-mini on a CPU"),
    CHOICE("preset", "NAME", NULL, "", "bench doctor plan", "Model", "Sizes of the model"),
    COUNT(
        "micro-batches", "N", NULL, 1, 65536, "train plan", "Steps",
        "Gradient accumulation: micro-batches in a step, counted over all ranks (default: one "
        "for each rank)"),
    COUNT("steps", "N", "100k", 1, 1e12, "train", "Steps", "Steps (updates) of the whole run"),
    COUNT("epochs", "N", NULL, 1, 1e6, "train", "Steps",
          "Epochs of the whole run; use instead of --steps"),
    {"max-time", OPT_SECONDS, "TIME", "0", 0, 1e9, NULL, 1, OPT_LAST, "train", "Steps",
     "Save and stop after this time; it counts this call alone. 0 is no limit"},
    CHOICE("lr-scheduler", "NAME", "noam",
           "noam=transformer|constant=fixed=constant-with-warmup|piecewise|exponential|"
           "polynomial=polynomial-decay|cosine|inverse-time=inverse|inverse-sqrt",
           "train", "Learning rate",
           "Learning-rate schedule after the warm-up. noam is lr * (d_model * step)^-0.5, "
           "inverse-sqrt is lr * (warmup / step)^0.5"),
    REAL("lr", "RATE", NULL, 0, 1000, "train", "Learning rate",
         "Peak learning rate, reached at the end of the warm-up (default 0.001; for classify "
         "5e-4 "
         "for bert-tiny to 3e-5 for bert-large); for noam a factor (default 2.0)"),
    COUNT("warmup-steps", "STEPS", "8000", 0, 1e12, "train", "Learning rate",
          "Steps of linear warm-up"),
    COUNT("lr-decay-steps", "STEPS", NULL, 1, 1e12, "train", "Learning rate",
          "Steps of the decay, counted from the end of the warm-up; by default the rest of the "
          "run"),
    REAL("min-lr", "RATE", "0", 0, 1000, "train", "Learning rate",
         "Learning rate at the end of the decay"),
    REAL("lr-power", "P", "1", 0.01, 100, "train", "Learning rate",
         "Exponent of the polynomial and inverse-time schedules"),
    REAL("lr-decay-rate", "R", "0.1", 0, 1, "train", "Learning rate",
         "Factor by which the exponential schedule falls over --lr-decay-steps"),
    TEXT(
        "lr-milestones", "LIST", NULL, "train", "Learning rate",
        "Steps and factors of the piecewise schedule, say 10k:0.5,20k:0.1: from step 10,000 on "
        "0.5 * lr, from 20,000 on 0.1 * lr"),
    CHOICE("optimizer", "NAME", "adam", "adam|adamw|sgd|novograd", "train", "Optimizer",
           "Optimizer"),
    REAL("beta1", "B", "0.9", 0, 0.9999, "train", "Optimizer",
         "Decay of the first moment (m); for sgd the momentum"),
    REAL("beta2", "B", "0.997", 0, 0.99999, "train", "Optimizer",
         "Decay of the second moment (v)"),
    REAL("epsilon", "E", "1e-9", 0, 1, "train", "Optimizer",
         "Added to the square root of the second moment"),
    REAL("weight-decay", "W", "0", 0, 10, "train", "Optimizer",
         "Weight decay: decoupled for adamw, added to the gradient for the others"),
    CHOICE("decay-biases", "yes|no", "yes", "yes=true|no=false", "train", "Optimizer",
           "Weight decay of biases, and of gains of layer norms, too"),
    REAL(
        "layer-lr-decay", "X", "1", 0.01, 1, "train", "Optimizer",
        "Layer-wise learning-rate decay: each layer has X times the learning rate of the layer "
        "above it, the embeddings that of a layer below the first"),
    COUNT("freeze-layers", "N", "0", 0, 1000, "train", "Optimizer",
          "Keep the embeddings and the first N layers as they are; 0 updates all weights"),
    REAL("ema-decay", "DECAY", "0", 0, 0.999999, "train", "Optimizer",
         "Decay of an exponential moving average of the weights, say 0.999; validation and "
         "translate use the average. 0 is none"),
    REAL("clip-norm", "NORM", "0", 0, 0, "train", "Optimizer",
         "Clip the gradient to this L2 norm over all parameters; 0 does not clip"),
    CHOICE("loss-scale", "HOW", "auto", "auto|none|dynamic", "train", "Optimizer",
           "Loss scaling: dynamic halves the scale on an overflow and doubles it after 2,000 "
           "steps "
           "without one; auto is dynamic for fp16, none otherwise"),
    REAL("label-smoothing", "P", "0.1", 0, 0.9, "train", "Optimizer",
         "Probability that label smoothing spreads over the vocabulary, or over the classes"),
    COUNT("valid-every", "STEPS", "1000", 0, 1e12, "train", "Validation and checkpoints",
          "Validate every so many steps, and at the end; 0 is never, and then there is no best "
          "checkpoint"),
    COUNT("patience", "N", "0", 0, 1e6, "train", "Validation and checkpoints",
          "Early stopping: stop after so many validations without a better score (BLEU for "
          "translate, --metric for classify); 0 is never"),
    COUNT("save-every", "STEPS", "1000", 1, 1e12, "train", "Validation and checkpoints",
          "Save a checkpoint every so many steps"),
    COUNT("peer-checkpoint", "STEPS", "0", 0, 1e12, "train", "Validation and checkpoints",
          "Copy the state every so many steps to memory (the directory TRIREME_PEER_DIR, which "
          "'trireme launch --peer-checkpoint' makes and copies to another machine); "
          "--auto-resume continues from the copy if it is later than the last checkpoint. 0 is "
          "never"),
    COUNT("keep-checkpoints", "N", "5", 1, 1e6, "train doctor", "Validation and checkpoints",
          "Latest checkpoints to keep, beside the best one; at least as many as "
          "--average-checkpoints needs"),
    COUNT(
        "average-checkpoints", "K", "5", 0, 1000, "train", "Validation and checkpoints",
        "At the end, average the last K checkpoints into a model of its own, RUN/average; 0 is "
        "none, and so is a run with one checkpoint"),
    COUNT("max-rollbacks", "N", "3", 0, 1000, "train", "Validation and checkpoints",
          "When the loss diverges, return to the last checkpoint and halve the learning rate; "
          "give up after so many times"),
    COUNT("log-every", "STEPS", "50", 1, 1e6, "train", "Validation and checkpoints",
          "Print and record the loss every so many steps"),
    CHOICE("tensorboard", "yes|no", "yes", "yes=true|no=false", "train",
           "Validation and checkpoints",
           "Write the metrics for TensorBoard too, to RUN/events.out.tfevents.*"),
    CHOICE("system-metrics", "yes|no", "yes", "yes=true|no=false", "train",
           "Validation and checkpoints",
           "Measure processors, memory, disks, network cards and GPUs of every host once a "
           "second, to RUN/system.jsonl"),
    CHOICE(
        "wandb", "off|offline", "off", "off|offline|online", "train",
        "Validation and checkpoints",
        "Write the run for Weights & Biases too (offline), to RUN/wandb; 'wandb sync' uploads "
        "it"),
    TEXT("wandb-project", "NAME", "trireme", "train", "Validation and checkpoints",
         "Project of the run on Weights & Biases"),
    COUNT(
        "histogram-every", "STEPS", "0", 0, 1e12, "train", "Validation and checkpoints",
        "Write histograms of all weights and gradients for TensorBoard every so many steps; 0 "
        "is never"),
    COUNT(
        "trace", "STEPS", "0", 0, 1e6, "train", "Validation and checkpoints",
        "Record every operation, all-reduce and wait of so many steps on all ranks, and write "
        "RUN/trace.json for Perfetto and chrome://tracing; 0 is none"),
    COUNT("trace-from", "STEPS", "10", 0, 1e12, "train", "Validation and checkpoints",
          "With --trace: first let so many steps of this call pass, which are slower than the "
          "others"),
    FLAG("reproducible", "train", "Ranks",
         "Bit-identical weights on any number of ranks: all-reduce after every micro-batch, in "
         "a "
         "fixed order"),
    FLAG("shard-optimizer", "train plan", "Ranks",
         "Shard the optimizer state (m, v) over the ranks, as ZeRO stage 1 does"),
    CHOICE("allreduce-dtype", "TYPE", "fp32", "fp32|bf16", "train plan", "Ranks",
           "Type in which the all-reduce sends gradients; sums in host memory are fp32"),
    CHOICE(
        "allreduce-transport", "NAME", "auto", "auto|nccl|host", "train bench plan", "Ranks",
        "Transport of the gradient all-reduce: nccl from GPU to GPU, which needs one GPU for "
        "each rank; host through host memory; auto is nccl where it is available"),
    BYTES("bucket-size", "SIZE", "8M", 16384, 1073741824.0, "train plan", "Ranks",
          "Bytes of gradients in one all-reduce; buckets are sent during the backward pass"),
    COUNT("nccl-ctas", "N", "0", 0, 64, "train", "Ranks",
          "Maximum number of SMs that a collective of NCCL occupies; 0: NCCL chooses"),
    CHOICE(
        "reserve-sms", "yes|no", "no", "yes=true|no=false", "train", "Ranks",
        "Choose cuBLASLt's GEMMs of the backward pass for --nccl-ctas fewer SMs (yes): faster "
        "only if NCCL runs during most of the backward pass"),
    FLAG("tune", "train", "Ranks",
         "Choose --bucket-size, --nccl-ctas and --reserve-sms by measuring for about a minute "
         "before the first step; a resumed run keeps them"),
    CHOICE(
        "overlap", "yes|no", "yes", "yes=true|no=false", "train plan", "Ranks",
        "Send gradients while the backward pass runs (yes), or all of them after it (no), to "
        "measure what the overlap is worth; the weights are the same"),
    {"rank-timeout", OPT_SECONDS, "TIME", "6s", 1, 86400, NULL, 1, OPT_LAST, "train", "Ranks",
     "Stop the run when a rank has made no progress for this time and for five times its "
     "usual interval"},
    TEXT(
        "init-from", "MODEL", NULL, "train", G_RUN,
        "Start from the weights of a run, a checkpoint or a model directory: what has the same "
        "name and shape is taken, the rest is initialised; without --preset the model has the "
        "sizes of MODEL"),
    FLAG("auto-resume", "train", G_RUN,
         "Continue the run if it has begun, otherwise begin it: the same command can be "
         "repeated until the run is complete, as by a job that is requeued"),
    FLAG("accept-data", "train", G_RUN,
         "With --resume or --auto-resume: continue although the data set has changed"),
    FLAG("dry-run", "train", G_RUN, "Print the memory and time that the run needs, and exit"),
    INPUT("model", "DIR", NULL, "translate", "What to translate",
          "A run (uses its best checkpoint, or the latest), a checkpoint or a model directory"),
    INPUT("input", "FILE", "-", "translate", "What to translate",
          "Text to translate, one sentence per line; '-' is standard input"),
    TEXT("output", "FILE", "-", "translate", "What to translate",
         "Write the translations to a file, which is replaced at the end; '-' is standard "
         "output. Use it "
         "under mpirun, which ignores errors of writing to its standard output"),
    INPUT("model", "DIR", NULL, "classify", "What to classify",
          "A classifier: a run (uses its best checkpoint, or the latest), a checkpoint or a "
          "model "
          "directory"),
    INPUT(
        "input", "FILE", "-", "classify", "What to classify",
        "Texts, one per line, a pair of texts with a tab between; '-' is standard input. With "
        "--text-column a table: .csv, .tsv or .jsonl, also .gz and .zst"),
    TEXTS("text-column", "NAME", 1, "classify", "What to classify",
          "Column of the table that has the texts; give it twice for pairs"),
    TEXT("output", "FILE", "-", "classify", "What to classify",
         "Write the labels to a file, which is replaced; '-' is standard output. Use it "
         "under mpirun, which ignores errors of writing to its standard output"),
    FLAG("json", "classify", "Output",
         "Print a JSON object for each text, with the probabilities of all labels"),
    REAL("threshold", "P", "0.5", 0, 1, "classify", "Output",
         "Models with several labels per text: print the labels whose probability exceeds P"),
    COUNT("beam-size", "N", "4", 1, 64, "translate bench", "Search", "Beam size"),
    REAL("length-penalty", "P", "0.6", 0, 10, "translate", "Search",
         "Exponent of the length penalty: scores are divided by ((5 + length) / 6)^P"),
    CHOICE("search-rules", "NAME", "gnmt", "gnmt|hf", "translate", "Search",
           "Scores and end of beam search: gnmt; hf is as in generate of Hugging Face, where "
           "scores "
           "are divided by length^P"),
    COUNT("extra-length", "N", "50", 0, 4096, "translate", "Search",
          "Longest output: tokens of the source plus this"),
    COUNT("max-length", "N", NULL, 1, 65536, "translate", "Search",
          "Longest output in tokens, independent of the source"),
    COUNT("nbest", "N", "1", 1, 64, "translate", "Search",
          "Print the N best translations of each line as 'LINE ||| text ||| Score= S ||| S', "
          "LINE "
          "from 0"),
    FLAG("sample", "translate", "Sampling",
         "Sample tokens instead of beam search; with --nbest N, N independent samples"),
    REAL("temperature", "T", "1", 0.01, 100, "translate", "Sampling",
         "Softmax temperature of sampling"),
    COUNT("top-k", "K", "0", 0, 4096, "translate", "Sampling",
          "Sample among the K most probable tokens; 0 is all"),
    FLAG("scores", "translate", "Search", "Print the score and a tab before each translation"),
    CHOICE("precision", "NAME", "fp32", "fp32|tf32|bf16|fp16|fp8", "train bench", G_RUN,
           "Precision of GEMMs and, on a GPU, of activations (fp8: bf16 activations)"),
    CHOICE("precision", "NAME", "fp32", "fp32|tf32|bf16|fp16", "translate classify", G_RUN,
           "Precision of GEMMs and, on a GPU, of activations"),
    NAMED("device", "NAME", "auto", "auto|cpu|cuda|cuda:0",
          "train translate classify bench plan", G_RUN,
          "auto (a GPU if there is one), cpu, cuda or cuda:N"),

    /* Options of inspect */
    COUNT("batch-tokens", "N", "4096", 16, 16777216, "inspect", "Batches",
          "Tokens in a batch, on each side"),
    COUNT("batch-tokens", "N", "4096", 16, 16777216, "bench", "Batches",
          "Tokens in a batch, on each side; for translate on a GPU the default is 16384"),
    COUNT("batch-tokens", "N", "4096", 16, 16777216, "translate", "Batches",
          "Source tokens in a batch; on a GPU the default is 16384"),
    COUNT("batch-tokens", "N", "4096", 16, 16777216, "classify", "Batches",
          "Tokens in a batch; on a GPU the default is 32768"),
    NAMED("batch-tokens", "N|auto", "4096", "auto|4096|8192|16384|32768", "train", "Batches",
          "Tokens in a micro-batch, on each side; auto: as many as fit into memory, at most "
          "65,536, chosen when the run begins"),
    COUNT("samples", "N", "3", 0, 1000, "inspect", "What to show",
          "Decoded sentence pairs to print"),
    CHOICE("split", "NAME", "train", "train|valid|test", "inspect", "What to show",
           "Split that the histogram and samples show"),
    FLAG("verify", "inspect", "What to show", "Verify the checksums of all files"),
    FLAG("json", "inspect bench doctor plan", "What to show", "Print JSON"),

    /* Options of bench */
    TEXT("lengths", "FILE", NULL, "bench", "What to show",
         "train, translate: file of sentence lengths, source and target per line; train with a "
         "BERT preset: of text lengths, one per line"),
    COUNT("batch-sentences", "N", NULL, 1, 65536, "bench", "Batches",
          "translate: sentences in a batch; 1 measures the latency of one sentence"),
    COUNT("steps", "N", "20", 1, 1000000, "bench", "What to show", "train: steps to measure"),
    {"time", OPT_SECONDS, "TIME", "3s", 0.01, 86400, NULL, 1, OPT_LAST, "bench", "What to show",
     "Time to measure"},
    BYTES("max-bytes", "SIZE", "256M", 4096, 4294967296.0, "bench", "What to show",
          "allreduce: largest array; the smallest has 4 kB"),

    BYTES("bytes", "SIZE", NULL, 64, 4294967296.0, "bench", "What to show",
          "allreduce: measure one array of this size instead of several sizes"),

    TEXT("ranks", "LIST", NULL, "bench", "What to show",
         "scale: numbers of ranks, say 1,2,4 or 1..4 (default: 1, 2, 4, 8 and so on, and the "
         "number of "
         "cores)"),

    /* Options of doctor */
    TEXT("run", "DIR", NULL, "doctor", "The planned run",
         "Directory of the run, which need not exist: its disk is measured (default: the "
         "current "
         "directory). If it has checkpoints, their sizes count instead of --preset"),
    TEXT("data", "DIR", NULL, "doctor", "The planned run",
         "The data set: its vocabulary counts instead of --vocab-size, and all hosts must see "
         "it"),
    FLAG("agent", "doctor", OPT_HIDDEN, "Answer questions on standard input and output"),

    /* Options of watch */
    FLAG("once", "watch", G_OUT,
         "Print one frame as plain text and end; the size is that of the terminal, or COLUMNS "
         "and "
         "LINES, or 80 by 24"),
    /* Options of score */
    CHOICE("task", "NAME", "translate", "translate|classify", "score", "Text",
           "What is scored: translations, or the probabilities of a classifier"),
    TEXTS(
        "ref", "FILE", 1, "score", "Text",
        "Reference translations, one per line; give it once for each reference. Classifiers: a "
        "table (CSV, TSV or JSON lines) with the true labels"),
    INPUT("hyp", "FILE", "-", "score", "Text",
          "The system's output; '-' is standard input. Classifiers: a file, .csv, .tsv or "
          ".jsonl, "
          "with a row for each text and a column for each class, its probability"),
    TEXTS("label-column", "NAME", 1, "score", "Text",
          "Classifiers: column of --ref with the label; give it once for each label if a text "
          "may "
          "have several, as numbers"),
    REAL("label-threshold", "X", "0.5", -1e300, 1e300, "score", "Text",
         "Classifiers: the labels are numbers, and a text has the label if its number is at "
         "least "
         "X; one --label-column with it is the classes 1 and 0"),
    REAL("threshold", "P", "0.5", 0, 1, "score", "Metric",
         "With several --label-column: a label is predicted if its probability exceeds P"),
    NAMED("metrics", "LIST", "bleu", "bleu|chrf|chrf++|ter|wer|cer|bleu,chrf,ter", "score",
          "Metric", "Comma-separated list of bleu, chrf, chrf++, ter, wer and cer"),
    CHOICE("tokenize", "NAME", "13a", "13a|none|intl|char", "score", "Metric",
           "Tokenization of BLEU"),
    FLAG("lowercase", "score", "Metric", "Ignore case; TER always does"),
    FLAG("sentence-level", "score", "Metric",
         "Score each sentence; BLEU then uses the effective n-gram order"),
    FLAG("confidence", "score", "Significance",
         "Print mean and 95% confidence interval by bootstrap resampling"),
    TEXTS("paired-bs", "FILE", 1, "score", "Significance",
          "Output of another system, compared with --hyp by paired bootstrap"),
    COUNT("resamples", "N", "1000", 2, 1e6, "score", "Significance",
          "Number of bootstrap samples"),
    COUNT("seed", "N", "12345", 0, 9007199254740992.0, "score", "Significance",
          "Seed of the bootstrap; the same seed draws the same samples as in sacreBLEU"),
    COUNT("width", "N", "2", 0, 15, "score", G_OUT, "Digits after the point"),
    FLAG("json", "score", G_OUT, "Print JSON with all digits"),

    /* Options of import */
    INPUT("from", "DIR", NULL, "import", "What to import",
          "Directory of a model of Hugging Face: config.json, weights, tokenizer files"),
    FLAG("pairs", "import", "What to import",
         "The model classifies pairs of texts, such as premise and hypothesis"),
    TEXT("out", "DIR", NULL, "import", G_OUT, "Model directory to write; it must not exist"),

    /* Options of export */
    CHOICE("to", "FORM", NULL, "hf|ctranslate2", "export", G_OUT,
           "Program that reads the model: hf is Hugging Face transformers"),
    TEXT("out", "DIR", NULL, "export", G_OUT, "Directory to write; it must not exist"),

    /* Options of report */
    TEXT("out", "FILE", NULL, "report", G_OUT,
         "File to write; '-' is standard output (default report.html; with --markdown and "
         "--json "
         "standard output)"),
    FLAG("markdown", "report", G_OUT, "Write Markdown instead of a page"),
    FLAG("json", "report", G_OUT, "Write JSON: every figure with all digits, null for unknown"),
    REAL("price-per-hour", "X", NULL, 0, 1e6, "report", G_OUT,
         "Price of one machine for an hour, in any currency: adds the cost of the run"),

    /* Options of launch */
    NAMED("nproc-per-node", "N", "auto", "auto|cpu|gpu|1|2|4|8", "launch", "Ranks",
          "Ranks on each machine: a number; cpu, one for each core; gpu, one for each GPU; "
          "auto, one "
          "for each GPU, or without GPUs one whose threads use all cores"),
    TEXT(
        "nnodes", "MIN:MAX", NULL, "launch", "Machines",
        "Machines of the run: a number, or the least and the greatest; by default all that are "
        "listed"),
    FLAG("standalone", "launch", "Machines",
         "Run on this machine alone, which is the default outside of Slurm"),
    TEXT("remote-program", "PATH", NULL, "launch doctor", "Machines",
         "Where trireme is on the other machines (default: the same path as here)"),
    TEXT("network", "CIDR|CARD", NULL, "launch doctor", "Machines",
         "Network for MPI and NCCL, such as 10.1.0.0/24 or eth0 (default: the fastest over "
         "which "
         "all machines reach each other)"),
    TEXT(
        "rdzv-endpoint", "HOST:PORT", NULL, "launch", "Machines without ssh",
        "Start the same command on every machine: they meet at this address, which one of them "
        "has (port 29400 if none is given). Needs --rdzv-key and --nnodes"),
    TEXT("rdzv-id", "ID", "trireme", "launch", "Machines without ssh",
         "Name of the rendezvous; a machine with another one is refused"),
    TEXT("rdzv-key", "FILE", NULL, "launch", "Machines without ssh",
         "The shared key by which machines know each other; the same file on every machine"),
    TEXT("new-key", "FILE", NULL, "launch", "Machines without ssh",
         "Write a new key for --rdzv-key to this file, which must not exist, and end"),
    {"join-timeout", OPT_SECONDS, "TIME", "10m", 1, 1e7, NULL, 1, OPT_LAST, "launch",
     "Machines", "Wait this long for the least number of machines"},
    {"stall-timeout", OPT_SECONDS, "TIME", NULL, 1, 1e7, NULL, 1, OPT_LAST, "launch",
     "Restarts",
     "The ranks have failed if none prints or reports anything for this long; train reports "
     "every "
     "micro-batch (default for train: 1h; for others no limit: it must be longer than the "
     "longest "
     "pause between lines)"},
    {"start-timeout", OPT_SECONDS, "TIME", "2m", 1, 1e7, NULL, 1, OPT_LAST, "launch",
     "Restarts",
     "A start counts as failed if mpirun has not started every rank within this time"},
    COUNT(
        "max-restarts", "N", "3", 0, 1000000, "launch", "Restarts",
        "Give up after so many failures without progress in between; commands other than train "
        "are restarted only if this is given"),
    COUNT(
        "peer-checkpoint", "STEPS", NULL, 1, 1e12, "launch", "Restarts",
        "For train: every so many steps copy the state to memory, of rank 0's machine and of a "
        "second one, and continue from there after a loss"),
    FLAG("all-output", "launch", G_OUT,
         "Print the output of every rank, each line with the rank before it, and not only of "
         "rank 0"),
    TEXT("log-dir", "DIR", NULL, "launch", G_OUT,
         "Directory of the log files, one for each rank (default: RUN/launch, or "
         "trireme-launch for "
         "a command without --run)"),
    FLAG("agent", "launch", OPT_HIDDEN, "Serve the head on standard input and output"),
    COUNT("agent-fd", "FD", NULL, 3, 1000000, "launch", OPT_HIDDEN,
          "Serve the head on a descriptor"),
    FLAG("agent-slurm", "launch", OPT_HIDDEN, "Serve the head as a task of srun"),
    FLAG("worker", "launch", OPT_HIDDEN, "Have the agent start this rank"),
    FLAG("rsh", "launch", OPT_HIDDEN, "Have the agent of a host run a command"),
    /* Options of launch, cluster and doctor */
    TEXT("hosts", "LIST", NULL, "launch cluster doctor", G_HOSTS,
         "Machines to reach by ssh, with the ranks on each if given: a:2,ann@b:2,[fe80::1]"),
    TEXT("hostfile", "FILE", NULL, "launch cluster doctor", G_HOSTS,
         "Machines, in an Open MPI host file, one line for each: HOST slots=N"),
    TEXT("inventory", "FILE", NULL, "launch cluster doctor", G_HOSTS,
         "Machines, in the JSON of 'aws ec2 describe-instances'"),
    COUNT("ssh-port", "N", "0", 0, 65535, "launch cluster doctor", G_HOSTS,
          "Port of the ssh daemons; 0 is ssh's own choice"),
    TEXT("ssh-key", "FILE", NULL, "launch cluster doctor", G_HOSTS,
         "Private key for ssh; by default ssh's own choice"),
    TEXT("ssh-user", "NAME", NULL, "launch cluster doctor", G_HOSTS,
         "User on the machines that name none, such as those of an inventory"),
    TEXTS("mount", "URL:DIR", 1, "cluster", "cluster up",
          "Mount a drive: nfs://SERVER/PATH:/MOUNT-POINT (also EFS) or "
          "cifs://SERVER/SHARE:/MOUNT-POINT; may be repeated"),
    TEXT("mount-options", "LIST", NULL, "cluster", "cluster up",
         "Further mount options, as in /etc/fstab, for every --mount"),
    TEXT("credentials", "FILE", NULL, "cluster", "cluster up",
         "User and password of CIFS drives: lines username=, password=, domain=; mode 0600"),
    {"install", OPT_FLAG, NULL, "yes", 0, 0, NULL, 1, OPT_LAST, "cluster", "cluster up",
     "Install packages that the program needs where they are missing; --no-install reports "
     "them as a failure"},
    {"doctor", OPT_FLAG, NULL, "yes", 0, 0, NULL, 1, OPT_LAST, "cluster", "cluster up",
     "Check the machines with 'trireme doctor' at the end; --no-doctor leaves it out"},
    COUNT(
        "host-timeout", "SECONDS", "60", 15, 86400, "cluster", G_HOSTS,
        "A host that has not answered for so long has failed; the command of 'cluster run' may "
        "be silent for longer"),
    TEXT("dir", "DIR", "/opt/trireme", "cluster", G_HOSTS,
         "Directory of the program on the machines; a relative one is below the home "
         "directory"),

    /* Options of board */
    COUNT("port", "N", "6007", 0, 65535, "board", "The page", "TCP port; 0 is any free one"),
    TEXT("bind", "ADDRESS", NULL, "board", "The page",
         "Listen on this address of this machine, 0.0.0.0 for all, instead of 127.0.0.1; the "
         "page then needs the token in the printed address"),

    /* Options of plan */
    NAMED("machine", "NAME|FILE", NULL, "h200|a100|v100|t4|this", "plan", "Machines",
          "A GPU that is known (h200, a100, v100, t4), this machine measured now (this), or a "
          "file that 'bench train --json' wrote"),
    TEXT("nodes", "LIST", "1", "plan", "Machines",
         "Numbers of machines: 8, or 1,2,6, or 1..64, which doubles from 1 to 64"),
    TEXT("gpus", "LIST", "1", "plan", "Machines",
         "GPUs of a machine, each with one rank; on a CPU the ranks of a machine. A list as of "
         "--nodes"),
    TEXT("link", "RATE,TIME", NULL, "plan", "Machines",
         "Bandwidth of a machine's network in each direction, and latency of a message: "
         "400Gbit,5us"),
    REAL("link-efficiency", "P", NULL, 0.01, 1, "plan", "Machines",
         "Share of the link's bandwidth that the all-reduce reaches (default: 0.8 for NCCL, "
         "0.67 "
         "for MPI over TCP)"),
    CHOICE("nccl-algo", "NAME", "auto", "auto|ring|tree", "plan", "Machines",
           "Algorithm of NCCL between machines; auto is the faster one for each bucket"),
    REAL("price-per-hour", "PRICE", "0", 0, 1e6, "plan", "Machines",
         "Price of an hour of one machine, for the cost; 0 is not known"),
    CHOICE("precision", "NAME", NULL, "fp32|tf32|bf16|fp16|fp8", "plan", G_RUN,
           "Precision (default: that of the measurement; bf16 on a GPU, fp16 without bf16)"),
    COUNT("batch-tokens", "N", NULL, 16, 16777216, "plan", "Steps",
          "Tokens in a micro-batch, on each side (default: that of the measurement, or 4096)"),
    COUNT("tokens", "N", "1G", 1, 1e15, "plan", "Steps", "Target tokens of the whole run"),
    COUNT("steps", "N", "10", 1, 1000000, "plan", "Steps",
          "Steps that --machine this measures"),
    COUNT("save-every", "STEPS", NULL, 1, 1e12, "plan", "Failures",
          "Steps between checkpoints (default: the best interval)"),
    REAL("jitter", "P", "0.02", 0, 1, "plan", "Failures",
         "Standard deviation of the ranks' compute times over their mean; a step waits for the "
         "slowest rank"),
    REAL("failures-per-node-day", "N", "0.004", 0, 1e5, "plan", "Failures",
         "Failures of a machine in a day, on average; each stops the run"),
    {"restart-time", OPT_SECONDS, "TIME", "60s", 0, 1e7, NULL, 1, OPT_LAST, "plan", "Failures",
     "Time from a failure until training continues"},
    {"checkpoint-time", OPT_SECONDS, "TIME", NULL, 0.001, 1e7, NULL, 1, OPT_LAST, "plan",
     "Failures",
     "Time by which a checkpoint delays training (default: the copy of the state to host "
     "memory)"},
    TEXT("svg", "FILE", NULL, "plan", "What to show",
         "Draw speed-up and parts of a step to this file, which is replaced"),
    TEXT("data", "DIR", NULL, "plan", "Model",
         "The data set: its vocabulary and the packing of its sentences or texts count instead "
         "of --vocab-size and full batches"),

    /* Options of help */
    FLAG("man", "help", "Form", "Print the manual as a man page"),
    FLAG("completion", "help", "Form", "Print the completion script for bash"),

    /* Options of every command */
    TEXT("config", "FILE", NULL,
         "prepare inspect score bench train translate classify doctor cluster board plan",
         G_RUN,
         "Read options from a file, one 'option = value' per line; the command line overrides "
         "it"),
    FLAG("quiet",
         "prepare inspect score bench train translate classify doctor cluster report board "
         "plan import "
         "export",
         G_RUN, "No progress, only warnings and errors"),
    FLAG(
        "quiet", "launch", G_RUN,
        "Omit launch's own lines, except warnings; for the ranks' lines pass --quiet after the "
        "command's name"),
    {0},
};
