/* The table of all options. Parser, help, man page, shell completion and config files are made
 * from it; aliases.c has their other names. A row: name, type, value in help, default, range,
 * choices, words, repeatable, commands, group, help. */
#include "cmd/cmd.h"

#define COUNT(name, arg, initial, min, max, commands, group, help) \
  { name, OPT_COUNT, arg, initial, min, max, NULL, 1, false, commands, group, help }
#define BYTES(name, arg, initial, min, max, commands, group, help) \
  { name, OPT_BYTES, arg, initial, min, max, NULL, 1, false, commands, group, help }
#define REAL(name, arg, initial, min, max, commands, group, help) \
  { name, OPT_REAL, arg, initial, min, max, NULL, 1, false, commands, group, help }
#define TEXT(name, arg, initial, commands, group, help) \
  { name, OPT_TEXT, arg, initial, 0, 0, NULL, 1, false, commands, group, help }
/* A text for which completion offers some values. */
#define NAMED(name, arg, initial, values, commands, group, help) \
  { name, OPT_TEXT, arg, initial, 0, 0, values, 1, false, commands, group, help }
#define TEXTS(name, arg, words, commands, group, help) \
  { name, OPT_TEXT, arg, NULL, 0, 0, NULL, words, true, commands, group, help }
#define PAIR(name, commands, group, help) \
  { name, OPT_TEXT, "SRC TGT", NULL, 0, 0, NULL, 2, false, commands, group, help }
#define FLAG(name, commands, group, help) \
  { name, OPT_FLAG, NULL, NULL, 0, 0, NULL, 1, false, commands, group, help }
#define CHOICE(name, arg, initial, choices, commands, group, help) \
  { name, OPT_CHOICE, arg, initial, 0, 0, choices, 1, false, commands, group, help }

#define G_DATA  "Text"
#define G_CLEAN "Cleaning"
#define G_TOK   "Tokenizer"
#define G_OUT   "Output"
#define G_RUN   OPT_COMMON
#define G_FETCH "Recipes and downloads"

const OptSpec cmd_options[] = {
    /* prepare: text */
    TEXTS("train", "SRC TGT", 2, "prepare", G_DATA,
          "Training text, one sentence a line: two files, or one with a tab between the sides; "
          "plain, .gz or .zst, '-' is standard input"),
    PAIR("valid", "prepare", G_DATA, "Validation text; also kept raw, for BLEU"),
    PAIR("test", "prepare", G_DATA, "Test text; also kept raw"),
    TEXT("source-lang", "CODE", "en", "prepare", G_DATA,
         "Language of the source side, for the record"),
    TEXT("target-lang", "CODE", "de", "prepare", G_DATA, "Language of the target side"),
    CHOICE("bad-utf8", "WHAT", "stop", "stop|drop", "prepare", G_DATA,
           "A line that is not UTF-8 stops the work, or its pair is dropped and counted"),

    /* prepare: cleaning */
    COUNT("min-words", "N", "1", 1, 65535, "prepare", G_CLEAN,
          "Drop pairs with fewer words on a side"),
    COUNT("max-words", "N", "80", 1, 65535, "prepare", G_CLEAN,
          "Drop pairs with more words on a side"),
    REAL("max-ratio", "R", "9", 1, 0, "prepare", G_CLEAN,
         "Drop pairs whose word counts differ by more than this factor"),
    COUNT("max-word-length", "N", "1000", 1, 0, "prepare", G_CLEAN,
          "Drop pairs with a word of more characters"),
    COUNT("max-tokens", "N", "255", 1, 4095, "prepare", G_CLEAN,
          "Drop pairs with more tokens on a side"),
    FLAG("dedup", "prepare", G_CLEAN, "Keep only the first of exactly equal pairs"),

    /* prepare: tokenizer */
    TEXT("tokenizer", "FILE", NULL, "prepare", G_TOK,
         "An existing SentencePiece .model; without it one is trained"),
    CHOICE("tokenizer-type", "TYPE", "bpe", "bpe|unigram", "prepare", G_TOK,
           "Kind of model to train"),
    COUNT("vocab-size", "N", "32768", 16, 1000000, "prepare bench", G_TOK,
          "Vocabulary, both languages together"),
    REAL("character-coverage", "P", "1.0", 0.5, 1, "prepare", G_TOK,
         "Share of characters that get a piece of their own"),
    COUNT("tokenizer-sample", "PAIRS", "500k", 1, 100e6, "prepare", G_TOK,
          "Pairs, drawn by the seed, that the tokenizer learns from"),

    /* prepare: recipes */
    NAMED("recipe", "NAME", NULL,
          "demo|multi30k-en-de|tatoeba-en-de|europarl-en-de|wmt16-en-de", "prepare", G_FETCH,
          "A known data set: demo, multi30k-en-de, tatoeba-en-de, europarl-en-de or "
          "wmt16-en-de; or a folder with a recipe.conf"),
    TEXT("source-dir", "DIR", NULL, "prepare", G_FETCH,
         "Where the recipe's files, or some of them, already are"),
    TEXT("download-dir", "DIR", NULL, "prepare", G_FETCH,
         "Where downloads are kept (default ~/.cache/trireme/NAME)"),
    TEXT("mirror", "URL", NULL, "prepare", G_FETCH, "Try this address first for every file"),
    COUNT("demo-pairs", "N", "200k", 100, 20e6, "prepare", G_FETCH,
          "Training pairs of the demo recipe"),

    /* prepare: output */
    TEXT("out", "DIR", NULL, "prepare", G_OUT,
         "The data set directory to make; it must not exist"),
    BYTES("shard-size", "SIZE", "64M", 4096, 1073741824.0, "prepare", G_OUT,
          "Token bytes in one shard file"),
    FLAG("resume", "prepare train", G_RUN, "Continue a run that was stopped"),
    COUNT("seed", "N", "1", 0, 0, "prepare inspect bench train translate", G_RUN,
          "Seed of every random choice"),
    COUNT("threads", "N", "0", 0, 1024, "prepare bench train translate", G_RUN,
          "Worker threads; 0 is one per core"),

    /* train and translate */
    TEXT("data", "DIR", NULL, "train", "What to train", "The data set, made by prepare"),
    TEXT("run", "DIR", NULL, "train", "What to train",
         "Where the run is recorded; it must not exist, but for --resume"),
    CHOICE("preset", "NAME", "base", "tiny|small|base|big", "train bench", "Model",
           "Sizes of the model"),
    COUNT("d-model", "N", NULL, 8, 65536, "train", "Model",
          "Model dimension; by default the preset's"),
    COUNT("ffn-dim", "N", NULL, 8, 262144, "train", "Model",
          "Inner dimension of the feed-forward layers; by default the preset's"),
    COUNT("heads", "N", NULL, 1, 1024, "train", "Model",
          "Attention heads; by default the preset's"),
    COUNT("encoder-layers", "N", NULL, 1, 250, "train", "Model",
          "Layers of the encoder; by default the preset's"),
    COUNT("decoder-layers", "N", NULL, 1, 250, "train", "Model",
          "Layers of the decoder; by default the preset's"),
    CHOICE("layer-norm", "WHERE", "pre", "pre|post", "train", "Model",
           "Layer norm before or after each sublayer"),
    FLAG("attention-bias", "train", "Model", "Biases in the projections of attention"),
    CHOICE("activation", "NAME", "relu", "relu|gelu|silu=swish", "train", "Model",
           "Activation of the feed-forward layers"),
    CHOICE("position-embedding", "NAME", "sinusoidal", "sinusoidal=halves|interleaved|learned",
           "train", "Model",
           "Position embeddings: sinusoidal, the first half sines and the second cosines; "
           "sines and cosines interleaved; or learned"),
    CHOICE("tie-embeddings", "WHAT", "all", "all|decoder|none", "train", "Model",
           "Share one table: source, target and output embeddings (all); target and output "
           "(decoder); or none"),
    REAL("dropout", "P", NULL, 0, 0.99, "train", "Model",
         "All four kinds of dropout below; by default the preset's"),
    REAL("embed-dropout", "P", NULL, 0, 0.99, "train", "Model", "Dropout of the embeddings"),
    REAL("attention-dropout", "P", NULL, 0, 0.99, "train", "Model",
         "Dropout of the attention weights"),
    REAL("activation-dropout", "P", NULL, 0, 0.99, "train", "Model",
         "Dropout inside the feed-forward layers"),
    REAL("residual-dropout", "P", NULL, 0, 0.99, "train", "Model",
         "Dropout of each sublayer's output"),
    COUNT("micro-batches", "N", NULL, 1, 65536, "train", "Steps",
          "Micro-batches of a step, counted over all ranks; their gradients accumulate "
          "(default: one for each rank)"),
    COUNT("steps", "N", "100k", 1, 1e12, "train", "Steps", "Steps of the whole run"),
    COUNT("epochs", "N", NULL, 1, 1e6, "train", "Steps",
          "Passes over the data, in place of steps"),
    {"max-time", OPT_SECONDS, "TIME", "0", 0, 1e9, NULL, 1, false, "train", "Steps",
     "Save and stop after this time; it counts this call alone. 0 is no limit"},
    CHOICE("lr-scheduler", "NAME", "noam",
           "noam=transformer|constant=fixed=constant-with-warmup|piecewise|exponential|"
           "polynomial=polynomial-decay|cosine|inverse-time=inverse|inverse-sqrt",
           "train", "Learning rate",
           "Learning-rate schedule after the warm-up. noam is lr * (d_model * step)^-0.5, "
           "inverse-sqrt is lr * (warmup / step)^0.5"),
    REAL("lr", "RATE", NULL, 0, 1000, "train", "Learning rate",
         "Peak learning rate, reached at the end of the warm-up (default 0.001); for noam a "
         "factor (default 2.0)"),
    COUNT("warmup-steps", "STEPS", "8000", 0, 1e12, "train", "Learning rate",
          "Steps over which the learning rate rises linearly"),
    COUNT("lr-decay-steps", "STEPS", NULL, 1, 1e12, "train", "Learning rate",
          "Steps of the decay, counted from the end of the warm-up; by default the rest of the "
          "run"),
    REAL("min-lr", "RATE", "0", 0, 1000, "train", "Learning rate",
         "Smallest learning rate, at the end of the decay"),
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
         "Decay of the first moment, m; the momentum of sgd"),
    REAL("beta2", "B", "0.997", 0, 0.99999, "train", "Optimizer",
         "Decay of the second moment, v"),
    REAL("epsilon", "E", "1e-9", 0, 1, "train", "Optimizer",
         "Added to the root of the second moment"),
    REAL("weight-decay", "W", "0", 0, 10, "train", "Optimizer",
         "Weight decay: decoupled in adamw, added to the gradient in the others"),
    REAL("ema-decay", "DECAY", "0", 0, 0.999999, "train", "Optimizer",
         "Decay of a moving average of the weights, say 0.999, with which to validate and "
         "translate; 0 is none"),
    REAL("clip-norm", "NORM", "0", 0, 0, "train", "Optimizer",
         "Clip the gradient to this L2 norm over all parameters; 0 does not clip"),
    CHOICE("loss-scale", "HOW", "auto", "auto|none|dynamic", "train", "Optimizer",
           "Scale of the loss while gradients are made: dynamic halves it when they overflow "
           "and doubles it after 2,000 clean steps; auto is dynamic in fp16, none otherwise"),
    REAL("label-smoothing", "P", "0.1", 0, 0.9, "train", "Optimizer",
         "Share of the probability that is spread over all words"),
    COUNT("valid-every", "STEPS", "1000", 0, 1e12, "train", "Validation and checkpoints",
          "Validate this often, and at the end; 0 is never, and then there is no best "
          "checkpoint"),
    COUNT("patience", "N", "0", 0, 1e6, "train", "Validation and checkpoints",
          "End after so many validations without a better BLEU; 0 is never"),
    COUNT("save-every", "STEPS", "1000", 1, 1e12, "train", "Validation and checkpoints",
          "Save a checkpoint this often"),
    COUNT("keep-checkpoints", "N", "5", 1, 1e6, "train", "Validation and checkpoints",
          "Latest checkpoints to keep, beside the best one; at least as many as "
          "--average-checkpoints needs"),
    COUNT(
        "average-checkpoints", "K", "5", 0, 1000, "train", "Validation and checkpoints",
        "At the end, average the last K checkpoints into a model of its own, RUN/average; 0 is "
        "none, and so is a run with one checkpoint"),
    COUNT("max-rollbacks", "N", "3", 0, 1000, "train", "Validation and checkpoints",
          "When the loss diverges, go back to the last checkpoint at half the learning rate, "
          "at most so often"),
    COUNT("log-every", "STEPS", "50", 1, 1e6, "train", "Validation and checkpoints",
          "A line of progress this often"),
    FLAG("reproducible", "train", "Ranks",
         "The same bits on any number of ranks: gradients are summed after every micro-batch"),
    FLAG("shard-optimizer", "train", "Ranks",
         "Each rank keeps and updates its share of the optimizer state (m, v) only"),
    CHOICE("allreduce-dtype", "TYPE", "fp32", "fp32|bf16", "train", "Ranks",
           "Type in which the all-reduce sends gradients; sums in host memory are fp32"),
    CHOICE(
        "allreduce-transport", "NAME", "auto", "auto|nccl|host", "train bench", "Ranks",
        "Transport of the gradient all-reduce: nccl from GPU to GPU, which needs one GPU for "
        "each rank; host through host memory; auto is nccl where it is available"),
    BYTES("bucket-size", "SIZE", "8M", 16384, 1073741824.0, "train", "Ranks",
          "Gradients that are all-reduced together, during the backward pass"),
    {"rank-timeout", OPT_SECONDS, "TIME", "6s", 1, 86400, NULL, 1, false, "train", "Ranks",
     "Stop the run when a rank has made no progress for this time and for five times its "
     "usual interval"},
    FLAG("accept-data", "train", G_RUN,
         "With --resume: go on although the data set is not the one the run was trained on"),
    FLAG("dry-run", "train", G_RUN, "Print what memory and time the run would take, and end"),
    TEXT("model", "DIR", NULL, "translate", "What to translate",
         "A run (its best checkpoint, or the latest), a checkpoint or a model directory"),
    TEXT("input", "FILE", "-", "translate", "What to translate",
         "The text, a sentence a line; '-' is standard input"),
    TEXT("output", "FILE", "-", "translate", "What to translate",
         "Write the translations to a file, which is replaced; '-' is standard output. Use it "
         "under mpirun, which ignores errors of writing to its standard output"),
    COUNT("beam-size", "N", "4", 1, 64, "train translate bench", "Search", "Beam size"),
    REAL("length-penalty", "P", "0.6", 0, 10, "train translate", "Search",
         "Exponent of the length penalty: scores are divided by ((5 + length) / 6)^P"),
    COUNT("extra-length", "N", "50", 0, 4096, "translate", "Search",
          "Longest output: so many tokens more than the source"),
    COUNT("max-length", "N", NULL, 1, 65536, "translate", "Search",
          "Longest output in tokens, whatever the source"),
    COUNT(
        "nbest", "N", "1", 1, 64, "translate", "Search",
        "Translations of each line, as lines 'N ||| translation ||| Score= S ||| S', N from 0"),
    FLAG("sample", "translate", "Sampling",
         "Draw words at random in place of beam search; --nbest are then N drawn apart"),
    REAL("temperature", "T", "1", 0.01, 100, "translate", "Sampling",
         "Below 1 likely words come more often, above 1 less"),
    COUNT("top-k", "K", "0", 0, 4096, "translate", "Sampling",
          "Draw among the K likeliest words; 0 is among all"),
    FLAG("scores", "translate", "Search", "The score and a tab before each translation"),
    CHOICE("precision", "NAME", "fp32", "fp32|tf32|bf16|fp16|fp8", "train bench", G_RUN,
           "Of matrix products (GEMMs) and, on a GPU, of activations (fp8: bf16)"),
    CHOICE("precision", "NAME", "fp32", "fp32|tf32|bf16|fp16", "translate", G_RUN,
           "Of matrix products (GEMMs) and, on a GPU, of activations"),
    NAMED("device", "NAME", "auto", "auto|cpu|cuda|cuda:0", "train translate bench", G_RUN,
          "auto (a GPU where there is one), cpu, cuda or cuda:N"),

    /* inspect */
    COUNT("batch-tokens", "N", "4096", 16, 16777216, "inspect", "Batches",
          "Tokens of a batch on each side"),
    COUNT("batch-tokens", "N", "4096", 16, 16777216, "bench", "Batches",
          "Tokens of a batch on each side; translate on a GPU: 16384 unless it is given"),
    COUNT("batch-tokens", "N", "4096", 16, 16777216, "translate", "Batches",
          "Source tokens of a batch; on a GPU 16384 unless it is given"),
    NAMED("batch-tokens", "N|auto", "4096", "auto|4096|8192|16384|32768", "train", "Batches",
          "Tokens of a micro-batch on each side; auto: as many as fit into the memory, at most "
          "65,536, chosen when the run begins"),
    COUNT("samples", "N", "3", 0, 1000, "inspect", "What to show", "Decoded pairs to print"),
    COUNT("samples", "N", "3", 0, 1000, "train", "What to show",
          "Translations to print at each validation, beside their references"),
    CHOICE("split", "NAME", "train", "train|valid|test", "inspect", "What to show",
           "Which part the histogram and samples are of"),
    FLAG("verify", "inspect", "What to show",
         "Read every byte and check it against its checksum"),
    FLAG("json", "inspect bench", "What to show", "Print JSON"),

    /* bench */
    TEXT("lengths", "FILE", NULL, "bench", "What to show",
         "train, translate: lengths of sentences, two a line"),
    COUNT("steps", "N", "20", 1, 1000000, "bench", "What to show", "train: how many"),
    {"time", OPT_SECONDS, "TIME", "3s", 0.01, 86400, NULL, 1, false, "bench", "What to show",
     "How long to measure"},
    BYTES("max-bytes", "SIZE", "256M", 4096, 4294967296.0, "bench", "What to show",
          "allreduce: arrays of 4 kB to this size"),

    /* score */
    TEXTS("ref", "FILE", 1, "score", "Text",
          "Reference translations, one a line; once for each reference"),
    TEXT("hyp", "FILE", "-", "score", "Text", "The system's output; '-' is standard input"),
    NAMED("metrics", "LIST", "bleu", "bleu|chrf|chrf++|ter|bleu,chrf,ter", "score", "Metric",
          "Any of bleu, chrf, chrf++, ter, with commas between"),
    CHOICE("tokenize", "NAME", "13a", "13a|none|intl|char", "score", "Metric",
           "How BLEU finds words"),
    FLAG("lowercase", "score", "Metric", "Ignore case in BLEU and chrF; TER always does"),
    FLAG("sentence-level", "score", "Metric",
         "One score a line; BLEU then leaves out orders longer than the sentence"),
    FLAG("confidence", "score", "Significance",
         "Mean and 95% interval over bootstrap samples of the sentences"),
    TEXTS("paired-bs", "FILE", 1, "score", "Significance",
          "Another system's output, to compare with --hyp by paired bootstrap"),
    COUNT("resamples", "N", "1000", 2, 1e6, "score", "Significance", "Bootstrap samples"),
    COUNT("seed", "N", "12345", 0, 9007199254740992.0, "score", "Significance",
          "Seed of the samples; the same seed as in sacreBLEU draws the same ones"),
    COUNT("width", "N", "2", 0, 15, "score", G_OUT, "Digits after the point"),
    FLAG("json", "score", G_OUT, "Print JSON, with every digit"),

    /* help */
    FLAG("man", "help", "Form", "The whole manual as a man page"),
    FLAG("completion", "help", "Form", "Completion for bash"),

    /* every command */
    TEXT("config", "FILE", NULL, "prepare inspect score bench train translate", G_RUN,
         "Read options from a file, one 'option = value' a line; the command line wins"),
    FLAG("quiet", "prepare inspect score bench train translate", G_RUN,
         "No progress, only warnings and errors"),
    {0},
};
