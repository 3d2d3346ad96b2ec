/* The one table of options: it makes the parser, the help, the man page, the
 * completion and the config file. A row: name, type, value in help, default,
 * range, choices, words, repeatable, verbs, group, help. */
#include "cmd/cmd.h"

#define COUNT(name, arg, initial, min, max, verbs, group, help) \
  { name, OPT_COUNT, arg, initial, min, max, NULL, 1, false, verbs, group, help }
#define BYTES(name, arg, initial, min, max, verbs, group, help) \
  { name, OPT_BYTES, arg, initial, min, max, NULL, 1, false, verbs, group, help }
#define REAL(name, arg, initial, min, max, verbs, group, help) \
  { name, OPT_REAL, arg, initial, min, max, NULL, 1, false, verbs, group, help }
#define TEXT(name, arg, initial, verbs, group, help) \
  { name, OPT_TEXT, arg, initial, 0, 0, NULL, 1, false, verbs, group, help }
#define TEXTS(name, arg, words, verbs, group, help) \
  { name, OPT_TEXT, arg, NULL, 0, 0, NULL, words, true, verbs, group, help }
#define PAIR(name, verbs, group, help) \
  { name, OPT_TEXT, "SRC TGT", NULL, 0, 0, NULL, 2, false, verbs, group, help }
#define FLAG(name, verbs, group, help) \
  { name, OPT_FLAG, NULL, NULL, 0, 0, NULL, 1, false, verbs, group, help }
#define CHOICE(name, arg, initial, choices, verbs, group, help) \
  { name, OPT_CHOICE, arg, initial, 0, 0, choices, 1, false, verbs, group, help }

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
    COUNT("sample", "PAIRS", "500k", 1, 100e6, "prepare", G_TOK,
          "Pairs, drawn by the seed, that the tokenizer learns from"),

    /* prepare: recipes */
    TEXT("recipe", "NAME", NULL, "prepare", G_FETCH,
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
    TEXT("preset", "NAME", "base", "train bench", "Model", "Sizes: tiny, small, base or big"),
    COUNT("width", "N", NULL, 8, 65536, "train", "Model",
          "Model dimension, d_model; by default the preset's"),
    COUNT("feed-width", "N", NULL, 8, 262144, "train", "Model",
          "Inner dimension of the feed-forward layers, ffn_dim; by default the preset's"),
    COUNT("heads", "N", NULL, 1, 1024, "train", "Model",
          "Attention heads; by default the preset's"),
    COUNT("encoder-layers", "N", NULL, 1, 250, "train", "Model",
          "Layers of the encoder; by default the preset's"),
    COUNT("decoder-layers", "N", NULL, 1, 250, "train", "Model",
          "Layers of the decoder; by default the preset's"),
    CHOICE("norm", "WHERE", "pre", "pre|post", "train", "Model",
           "Layer norm before or after each sublayer"),
    FLAG("attention-bias", "train", "Model", "Biases in the projections of attention"),
    CHOICE("activation", "NAME", "relu", "relu|gelu|silu", "train", "Model",
           "Activation of the feed-forward layers"),
    CHOICE("positions", "NAME", "halves", "halves|interleaved|learned", "train", "Model",
           "Position embeddings: sinusoidal, sines then cosines (halves) or interleaved, or "
           "learned"),
    CHOICE("tie", "WHAT", "all", "all|decoder|none", "train", "Model",
           "Tied embeddings: source, target and output, target and output (decoder), or none"),
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
    {"time", OPT_SECONDS, "TIME", "0", 0, 1e9, NULL, 1, false, "train", "Steps",
     "End this call after so long, whatever earlier calls of the run took; 0 is never"},
    CHOICE("lr-policy", "NAME", "transformer",
           "transformer|fixed|piecewise|exponential|polynomial|cosine|inverse", "train",
           "Learning rate",
           "How the learning rate changes; transformer is the inverse square root of the step "
           "(noam)"),
    REAL("lr", "RATE", NULL, 0, 1000, "train", "Learning rate",
         "Learning rate after warm-up (default 0.001); for transformer a factor (default 2.0)"),
    COUNT("warmup", "STEPS", "8000", 0, 1e12, "train", "Learning rate",
          "Steps over which the learning rate rises linearly"),
    COUNT("lr-decay-steps", "STEPS", NULL, 1, 1e12, "train", "Learning rate",
          "Steps over which it falls, after the warm-up; by default all that are left of the "
          "run"),
    REAL("lr-least", "RATE", "0", 0, 1000, "train", "Learning rate",
         "Smallest learning rate, at the end of the decay"),
    REAL("lr-power", "P", "1", 0.01, 100, "train", "Learning rate",
         "Exponent of the polynomial and inverse policies"),
    REAL("lr-rate", "R", "0.1", 0, 1, "train", "Learning rate",
         "Factor of the exponential policy over its decay steps"),
    TEXT("lr-pieces", "LIST", NULL, "train", "Learning rate", "For piecewise: 10k:0.5,20k:0.1"),
    CHOICE("optimizer", "NAME", "adam", "adam|adamw|sgd|novograd", "train", "Optimiser",
           "Optimizer"),
    REAL("beta1", "B", "0.9", 0, 0.9999, "train", "Optimiser",
         "Decay of the first moment, m; the momentum of sgd"),
    REAL("beta2", "B", "0.997", 0, 0.99999, "train", "Optimiser",
         "Decay of the second moment, v"),
    REAL("epsilon", "E", "1e-9", 0, 1, "train", "Optimiser",
         "Added to the root of the second moment"),
    REAL("weight-decay", "W", "0", 0, 10, "train", "Optimiser",
         "Weight decay: decoupled in adamw, added to the gradient in the others"),
    REAL("ema", "KEEP", "0", 0, 0.999999, "train", "Optimiser",
         "Decay of a moving average of the weights, say 0.999, with which to validate and "
         "translate; 0 is none"),
    REAL("clip", "NORM", "0", 0, 0, "train", "Optimiser",
         "Clip the gradient to this norm; 0 does not clip"),
    CHOICE("loss-scale", "HOW", "auto", "auto|none|dynamic", "train", "Optimiser",
           "Scale of the loss while gradients are made: dynamic halves it when they overflow "
           "and doubles it after 2,000 clean steps; auto is dynamic in fp16, none otherwise"),
    REAL("label-smoothing", "P", "0.1", 0, 0.9, "train", "Optimiser",
         "Share of the probability that is spread over all words"),
    COUNT("valid-every", "STEPS", "1000", 0, 1e12, "train", "Validation and checkpoints",
          "Validate this often, and at the end; 0 is never, and then there is no best "
          "checkpoint"),
    COUNT("patience", "N", "0", 0, 1e6, "train", "Validation and checkpoints",
          "End after so many validations without a better BLEU; 0 is never"),
    COUNT("save-every", "STEPS", "1000", 1, 1e12, "train", "Validation and checkpoints",
          "Save a checkpoint this often"),
    COUNT("keep", "N", "5", 1, 1e6, "train", "Validation and checkpoints",
          "Checkpoints kept, beside the best; never fewer than --average wants"),
    COUNT(
        "average", "K", "5", 0, 1000, "train", "Validation and checkpoints",
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
    CHOICE("exchange", "TYPE", "fp32", "fp32|bf16", "train", "Ranks",
           "Type of the gradients in the all-reduce; the host adds them in fp32"),
    CHOICE("collectives", "WAY", "auto", "auto|nccl|host", "train bench", "Ranks",
           "Transport of the all-reduce: nccl, from GPU to GPU, which needs one for each rank; "
           "host, through host memory; auto, nccl where it is available"),
    BYTES("bucket-size", "SIZE", "8M", 16384, 1073741824.0, "train", "Ranks",
          "Gradients that are all-reduced together, during the backward pass"),
    {"silence", OPT_SECONDS, "TIME", "6s", 1, 86400, NULL, 1, false, "train", "Ranks",
     "Rank timeout: a rank that makes no progress for so long, and for five times its usual, "
     "ends the run"},
    FLAG("accept-data", "train", G_RUN,
         "With --resume: go on although the data set is not the one the run was trained on"),
    FLAG("dry-run", "train", G_RUN, "Print what memory and time the run would take, and end"),
    TEXT("model", "DIR", NULL, "translate", "What to translate",
         "A run (its best checkpoint, or the latest), a checkpoint or a model directory"),
    TEXT("input", "FILE", "-", "translate", "What to translate",
         "The text, a sentence a line; '-' is standard input"),
    COUNT("beam", "N", "4", 1, 64, "train translate bench", "Search", "Beam size"),
    REAL("alpha", "A", "0.6", 0, 10, "train translate", "Search",
         "Length penalty: scores are divided by ((5 + length) / 6)^alpha"),
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
    TEXT("device", "NAME", "auto", "train translate bench", G_RUN,
         "auto (a GPU where there is one), cpu, cuda or cuda:N"),

    /* inspect */
    COUNT("batch-tokens", "N", "4096", 16, 16777216, "inspect", "Batches",
          "Tokens of a batch on each side"),
    COUNT("batch-tokens", "N", "4096", 16, 16777216, "bench", "Batches",
          "Tokens of a batch on each side; translate on a GPU: 16384 unless it is given"),
    COUNT("batch-tokens", "N", "4096", 16, 16777216, "translate", "Batches",
          "Source tokens of a batch; on a GPU 16384 unless it is given"),
    TEXT("batch-tokens", "N|auto", "4096", "train", "Batches",
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
    BYTES("largest", "SIZE", "256M", 4096, 4294967296.0, "bench", "What to show",
          "allreduce: arrays of 4 kB to this size"),

    /* score */
    TEXTS("ref", "FILE", 1, "score", "Text",
          "Reference translations, one a line; once for each reference"),
    TEXT("hyp", "FILE", "-", "score", "Text", "The system's output; '-' is standard input"),
    TEXT("metric", "LIST", "bleu", "score", "Metric",
         "Any of bleu, chrf, chrf++, ter, with commas between"),
    CHOICE("tokenize", "NAME", "13a", "13a|none|intl|char", "score", "Metric",
           "How BLEU finds words"),
    FLAG("lowercase", "score", "Metric", "Ignore case in BLEU and chrF; TER always does"),
    FLAG("sentence", "score", "Metric",
         "One score a line; BLEU then leaves out orders longer than the sentence"),
    FLAG("confidence", "score", "Significance",
         "Mean and 95% interval over bootstrap samples of the sentences"),
    TEXTS("paired", "FILE", 1, "score", "Significance",
          "Another system's output, to compare with --hyp by paired bootstrap"),
    COUNT("resamples", "N", "1000", 2, 1e6, "score", "Significance", "Bootstrap samples"),
    COUNT("seed", "N", "12345", 0, 9007199254740992.0, "score", "Significance",
          "Seed of the samples; the same seed as in sacreBLEU draws the same ones"),
    COUNT("width", "N", "2", 0, 15, "score", G_OUT, "Digits after the point"),
    FLAG("json", "score", G_OUT, "Print JSON, with every digit"),

    /* help */
    FLAG("man", "help", "Form", "The whole manual as a man page"),
    FLAG("completion", "help", "Form", "Completion for bash"),

    /* every verb */
    TEXT("config", "FILE", NULL, "prepare inspect score bench train translate", G_RUN,
         "Read options from a file, one 'option = value' a line; the command line wins"),
    FLAG("quiet", "prepare inspect score bench train translate", G_RUN,
         "No progress, only warnings and errors"),
    {0},
};
