/* The table of commands, and the only place that exits. Depends on cmd, base. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "cmd/bench.h"
#include "cmd/cmd.h"

static const OptCommand commands[] = {
    {.name = "prepare",
     .summary = "tokenize parallel text or labeled texts into a data set",
     .usage =
         "--out DIR --train SRC TGT [--train SRC TGT ...] --valid SRC TGT [--test SRC TGT] "
         "[--tokenizer FILE] | --recipe NAME --out DIR | --task classify --out DIR --train "
         "FILE "
         "--text-column NAME --label-column NAME [--split 0.1] --vocab FILE",
     .about = "Cleans the text, trains a joint SentencePiece model on it (or takes the one you "
              "give), "
              "encodes every sentence and writes a data set that training maps into memory. "
              "The same "
              "inputs and seed give the same bytes, whatever the number of threads. With "
              "--task classify "
              "the texts are in tables (CSV, TSV, JSON lines) with columns of labels.",
     .examples =
         "  trireme prepare --recipe demo --out data/demo\n"
         "  trireme prepare --train train.en.gz train.de.gz --valid dev.en dev.de \\\n"
         "      --vocab-size 8000 --out data/mine\n"
         "  trireme prepare --task classify --train tweets.csv.gz --text-column text \\\n"
         "      --label-column class --split 0.1 --vocab vocab.txt --out data/tweets\n",
     .instead = "give text with --train SRC TGT, --valid SRC TGT and --test SRC TGT",
     .run = cmd_prepare},
    {.name = "inspect",
     .summary = "print and verify a data set: counts, lengths, packing, samples",
     .usage = "PATH [--batch-tokens N] [--samples N] [--verify] [--json]",
     .about =
         "Prints what the data set at PATH holds: sizes and counts, pairs dropped by cleaning, "
         "sentence lengths, packing efficiency of training batches, and decoded samples.",
     .examples = "  trireme inspect data/demo --batch-tokens 4096\n",
     .operands = "the PATH of a data set",
     .min_operands = 1,
     .max_operands = 1,
     .run = cmd_inspect},
    {.name = "train",
     .summary = "train a Transformer on a data set",
     .usage = "--data DIR --run DIR [--preset NAME] [--batch-tokens N] [--micro-batches N] "
              "[--steps N | --max-time T] [--resume]",
     .about =
         "Trains on the packed batches of a data set, validates (translations with beam search "
         "and BLEU, classifiers with F1 and other scores) and "
         "saves checkpoints that 'translate' or 'classify' can use. Ctrl-C finishes the step, "
         "saves and "
         "exits "
         "with status 3; a second Ctrl-C drops the unfinished step. --resume continues the "
         "run.",
     .examples =
         "  trireme train --data data/demo --run runs/demo --preset tiny --steps 2000\n",
     .instead = "give the data set with --data DIR and the run with --run DIR",
     .run = cmd_train},
    {.name = "translate",
     .summary = "translate text with a trained model",
     .usage = "--model DIR [--beam-size N | --sample] [--nbest N] [--scores] [--input FILE] "
              "[--output FILE]",
     .about =
         "Translates raw text, one sentence per line, with a run's best checkpoint, or any "
         "other checkpoint or model directory. The output is in the order of the input and "
         "does not depend on batching; empty lines stay empty.",
     .examples = "  trireme translate --model runs/demo < test.src > test.out\n",
     .instead = "give the text with --input FILE, or on standard input",
     .run = cmd_translate},
    {.name = "classify",
     .summary = "classify texts with a trained model",
     .usage = "--model DIR [--input FILE [--text-column NAME]] [--output FILE] [--json] "
              "[--threshold P]",
     .about =
         "Prints one line for each text, in the order of the input: the label and its "
         "probability, the labels above --threshold if a text may have several, or the number "
         "that the model computes. The result of a text does not depend on the others.",
     .examples = "  trireme classify --model runs/toxicity < comments.txt\n"
                 "  trireme classify --model runs/toxicity --input test.csv --text-column text "
                 "\\\n"
                 "    --json --output predictions.jsonl\n",
     .instead = "give the texts with --input FILE, or on standard input",
     .run = cmd_classify},
    {.name = "import",
     .summary = "make a model directory of a model of Hugging Face",
     .usage = "--from DIR --out DIR",
     .about =
         "Reads a model as Hugging Face transformers stores it: MarianMT (Opus-MT), BERT, "
         "DistilBERT or RoBERTa; config.json, model.safetensors or pytorch_model.bin, also "
         "in several files, and the files of the tokenizer. Writes a model directory. "
         "Files are read, never executed: a pytorch_model.bin that contains more than "
         "weights is refused.",
     .examples = "  trireme import --from opus-mt-en-de --out models/en-de\n"
                 "  trireme translate --model models/en-de < test.en\n"
                 "  trireme import --from bert-base-uncased --out models/bert\n"
                 "  trireme train --data data/comments --run runs/comments --init-from "
                 "models/bert\n",
     .instead = "name the model with --from DIR and the output with --out DIR",
     .run = cmd_import},
    {.name = "export",
     .summary = "write a model for Hugging Face transformers or CTranslate2",
     .usage = "MODEL --to hf|ctranslate2 --out DIR",
     .about = "Writes a directory that the other program loads, with the files of the "
              "tokenizer. MODEL is a run (its best checkpoint), a checkpoint or a model "
              "directory. transformers has classifiers and encoders of the BERT family, and of "
              "translation models the form of imported ones (MarianMT); CTranslate2 runs every "
              "translation model.",
     .examples = "  trireme export runs/demo --to ctranslate2 --out demo-ct2\n"
                 "  trireme export models/en-de --to hf --out en-de-hf\n",
     .operands = "the MODEL to export",
     .min_operands = 1,
     .max_operands = 1,
     .run = cmd_export},
    {.name = "score",
     .summary = "compute BLEU, chrF, TER, WER, or scores of a classifier",
     .usage = "--ref FILE [--ref FILE ...] [--metrics LIST] < hypotheses",
     .about =
         "Scores translations against references and prints the sacreBLEU signature with each "
         "score. With --task classify, scores the probabilities of a classifier against true "
         "labels: accuracy, F1, ROC AUC, average precision, MCC, log loss and calibration "
         "error, "
         "equal to scikit-learn's.",
     .examples = "  trireme score --ref newstest2014.de < output.de\n"
                 "  trireme score --task classify --ref test.csv --label-column class \\\n"
                 "    --hyp predictions.jsonl\n",
     .instead = "give the translations with --hyp FILE, or on standard input",
     .run = cmd_score},
    {.name = "watch",
     .summary = "show a run in the terminal while it goes on",
     .usage = "RUN [--once]",
     .about =
         "Shows the curve of the loss or of another value, speed, time left, the parts of a "
         "step, "
         "hosts, GPUs and ranks of the run in the directory RUN, and looks for news once a "
         "second. Reads files only: training is not affected. The run may begin, end and be "
         "restarted meanwhile. Press h for the keys, q to quit. Where the terminal cannot be "
         "drawn on, prints a line for each change, until the run is complete.",
     .examples = "  trireme watch runs/demo\n"
                 "  ssh -t head trireme watch runs/demo\n",
     .operands = "the directory RUN",
     .min_operands = 1,
     .max_operands = 1,
     .run = cmd_watch},
    {.name = "bench",
     .summary = "measure the speed of this machine",
     .usage = "reader DIR | train --lengths FILE [--preset NAME] | translate --lengths FILE "
              "[--preset NAME] | allreduce | scale [--ranks LIST] -- COMMAND ...",
     .about =
         "reader: tokens per second of packed batches read from a data set; it "
         "takes " BENCH_READER ". "
         "train: training steps with random weights on sentences (with a BERT preset texts) of "
         "the lengths in a file; it "
         "takes " BENCH_TRAIN ". "
         "translate: beam search on the same; it takes " BENCH_TRANSLATE ". "
         "allreduce: the gradient all-reduce of train on arrays of several sizes; it "
         "takes " BENCH_ALLREDUCE ". "
         "scale: the time of train, translate or classify on several numbers of ranks, one run "
         "after the "
         "other, with speed-up, efficiency, loss and metric; it takes " BENCH_SCALE
         ". All take " BENCH_ALL ".",
     .examples =
         "  trireme bench reader data/demo --batch-tokens 25600\n"
         "  trireme bench train --lengths lengths.tsv --preset small --batch-tokens "
         "2048\n"
         "  mpirun -n 2 trireme bench allreduce\n"
         "  trireme bench scale --ranks 1,2,4 -- train --data data/demo --run runs/s \\\n"
         "    --steps 200 --threads 1\n",
     .operands = "the name of a bench",
     .min_operands = 1,
     .max_operands = BENCH_OPERANDS,
     .run = cmd_bench},
    {.name = "plan",
     .summary = "predict time, cost and memory on machines you do not have",
     .usage = "--machine NAME|FILE [--preset NAME] [--data DIR] [--nodes LIST] [--gpus LIST] "
              "[--link RATE,TIME] [--tokens N] [--price-per-hour PRICE] [--svg FILE] [--json]",
     .about =
         "Predicts a training run for each number of machines: the step time and its parts "
         "(compute, wait for the slowest rank, all-reduce hidden and not hidden by backward), "
         "tokens per second, efficiency, memory of a GPU, time and cost, and the best interval "
         "between checkpoints. Every number says whether it is measured, given or assumed.",
     .examples =
         "  trireme plan --preset base --data data/wmt16 --machine h200 --nodes 1..64 \\\n"
         "      --gpus 8 --link 400Gbit,5us --tokens 3G --price-per-hour 32\n"
         "  trireme plan --machine this --nodes 1..8 --link 1Gbit,50us\n",
     .instead = "name the machine with --machine",
     .run = cmd_plan},
    {.name = "doctor",
     .summary = "check machines, disks and network before a run",
     .usage = "[--preset NAME] [--run DIR] [--data DIR] [--hosts LIST | --hostfile FILE | "
              "--inventory FILE] [--ssh-port N] [--ssh-key FILE] [--json]",
     .about =
         "Checks cores, memory, GPUs and their driver, limits, network cards, MPI with a "
         "real all-reduce of the model's gradient, and the disk's space and speed against "
         "what a run of the preset writes. Prints a table with a remedy for each problem; "
         "exits with 1 if there is one. With hosts, checks all of them in parallel, and what "
         "they have in common: ssh, clocks, program and libraries, network and ports, latency "
         "and bandwidth of every pair, the shared directory, an all-reduce over all hosts.",
     .examples = "  trireme doctor\n"
                 "  trireme doctor --preset big --run /mnt/shared/runs/big --json\n"
                 "  trireme doctor --hosts a,b,c --ssh-key ~/.ssh/lab --run /mnt/runs/one\n",
     .instead = "name the directory of the run with --run DIR",
     .run = cmd_doctor},
    {.name = "launch",
     .summary = "start and supervise ranks on one machine or many",
     .usage =
         "[--nproc-per-node N|auto|cpu|gpu] [--nnodes MIN:MAX] [--max-restarts K] -- train ...",
     .about = "Starts the ranks of a command, shows the output of rank 0 and writes a log file "
              "for each "
              "rank. When a rank fails, all are stopped and train continues from its last "
              "checkpoint. "
              "Ctrl-C lets train save and exit with status 3; a second Ctrl-C ends it at once. "
              "The same "
              "command later continues the run.",
     .examples =
         "  trireme launch --nproc-per-node 2 -- train --data data/demo --run runs/demo\n",
     .operands = "a command",
     .max_operands = 4096,
     .is_wrapper = true,
     .run = cmd_launch},
    {.name = "cluster",
     .summary = "prepare machines for training: program, packages, shared drive",
     .usage = "up|down|status|ssh N|run -- COMMAND (--hosts LIST | --hostfile FILE | "
              "--inventory FILE) [--mount nfs://SERVER/PATH:/MOUNT-POINT]",
     .about =
         "Works on machines that exist, over ssh, on all at once. "
         "up: copies this program with its plug-ins, installs packages that it needs, mounts "
         "drives through /etc/fstab, and prints the ports that must be open and the launch "
         "line; repeating it changes nothing. down: undoes what up did and nothing else; "
         "packages stay. status: what is there. ssh N: a shell on host number N. run: a "
         "command "
         "on every host; one word is a command line for sh, several are run as they are. A "
         "host "
         "that fails is named and the others go on.",
     .examples = "  trireme cluster up --hosts ann@a,ann@b --mount nfs://nas/data:/mnt/data\n"
                 "  trireme cluster run --inventory instances.json -- nvidia-smi\n"
                 "  trireme cluster ssh 2 --inventory instances.json\n",
     .operands = "up, down, status, ssh or run",
     .min_operands = 1,
     .max_operands = CLUSTER_OPERANDS,
     .run = cmd_cluster},
    {.name = "report",
     .summary = "explain a run from what it measured; compare runs",
     .usage = "RUN [RUN ...] [--out report.html] [--markdown | --json] [--price-per-hour X]",
     .about = "Writes one page that answers, from measurements alone, how long the run took, "
              "whether "
              "it is fully trained or overfitting, whether devices or network limited it, what "
              "a step "
              "and a checkpoint consist of, what it cost, and what to change. Several runs are "
              "compared with the first, up to 16. What was not measured is said to be unknown.",
     .examples =
         "  trireme report runs/demo\n"
         "  trireme report runs/one runs/two --out compared.html --price-per-hour 2.5\n",
     .operands = "the directory of a run",
     .min_operands = 1,
     .max_operands = 16,
     .run = cmd_report},
    {.name = "board",
     .summary = "show runs on a local web page while they train",
     .usage = "DIR [--port N] [--bind ADDRESS]",
     .about =
         "Serves a page with all runs below DIR, live: curves of several runs in one chart, "
         "speed and times of each rank, hosts and GPUs, samples, options and how they differ, "
         "checkpoints, restarts and roll-backs. Prints the page's address. Without --bind only "
         "this machine reaches it. Ctrl-C ends it; runs do not notice.",
     .examples = "  trireme board runs\n"
                 "  ssh -L 6007:localhost:6007 gpu1 trireme board /mnt/runs\n",
     .operands = "the DIR that has the runs",
     .min_operands = 1,
     .max_operands = 1,
     .run = cmd_board},
    {.name = "help",
     .summary = "show this list, or the options of a command",
     .usage = "[COMMAND | aliases] [--man | --completion]",
     .about = "Shows the commands, one command's options, or the other names of all options "
              "(aliases).",
     .operands = "a command",
     .max_operands = 1,
     .run = cmd_help},
    {0},
};

static Err run_command(const char *name, int argc, char **argv) {
  const OptCommand *command = opt_command(name);
  if (!command) cmd_let_rank0_fail(); /* one error instead of one per rank */
  if (!command && name[0] == '-')
    return err_set(
        ERR_USAGE,
        "pass the command first, then its options: 'trireme COMMAND %s'; 'trireme help' "
        "lists the commands",
        name);
  if (!command)
    return err_set(ERR_USAGE, "there is no command '%s'%s", name, opt_suggest_command(name));
  OptSet *opts;
  Err err = opt_parse(&opts, command, argc, argv);
  if (err) {
    cmd_let_rank0_fail();
    return err;
  }
  err = command->run(opts);
  opt_free(opts);
  return err;
}

/* Is one of the words before "--" this option? */
static bool has_word(int argc, char **argv, const char *name) {
  for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
    if (strcmp(argv[i], name) == 0) return true;
  }
  return false;
}

static Err dispatch_command(int argc, char **argv) {
  opt_tables(cmd_options(), commands, cmd_aliases);
  if (argc < 2)
    return err_set(ERR_USAGE, "no command given; 'trireme help' lists the commands");
  char *name = argv[1];
  int words =
      opt_command(name) ? argc - 1 : 1; /* after an unknown command, that is the error */
  if (has_word(words, argv + 1, "--help") || has_word(words, argv + 1, "-h"))
    return run_command("help", opt_command(name) != NULL, &name);
  if (has_word(words, argv + 1, "--version")) {
    puts("trireme " TRIREME_VERSION);
    return ERR_OK;
  }
  return run_command(name, argc - 2, argv + 2);
}

int main(int argc, char **argv) {
  out_reserve();
  mem_fail_after(fault_number("memory", 0));
  /* A write to a closed pipe fails, so that the command can clean up. Progress on standard error
   * that nobody reads ends nothing. */
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN); /* a file that may not grow (ulimit -f) is an error to report */
  Err err = dispatch_command(argc, argv);
  if (!err) err = out_flush();
  if (err && out_is_reader_gone()) {
    signal(SIGPIPE, SIG_DFL); /* end as other tools do, without a message */
    raise(SIGPIPE);
  }
  if (err && err != ERR_STOPPED) {
    fflush(stdout); /* an error may refer to a table above it, also in one file (2>&1) */
    log_error("%s", err_message());
  }
  log_to_end(); /* the last line is in it too */
  return (int)err;
}
