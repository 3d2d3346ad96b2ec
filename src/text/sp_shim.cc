// C interface to SentencePiece: converts types, and statuses and exceptions to Err.
// Depends on libsentencepiece.
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <exception>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

extern "C" {
#include "text/sp_shim.h"
}

namespace sp = sentencepiece;

struct SpModel {
  sp::SentencePieceProcessor processor;
};

// sp::util::Status, since SentencePiece 0.2.2 absl::Status
using Status = decltype(std::declval<const sp::SentenceIterator &>().status());

// A list as Decode takes it: since SentencePiece 0.2.2, which includes Abseil's header, a span.
#ifdef ABSL_TYPES_SPAN_H_
template <class T>
static absl::Span<const T> as_list(const std::vector<T> &list) {
  return absl::MakeConstSpan(list);
}
#else
template <class T>
static const std::vector<T> &as_list(const std::vector<T> &list) {
  return list;
}
#endif

static Err report_failure(const char *what, const std::string &why) {
  return err_set(ERR_WORK, "%s: %s", what, why.c_str());
}

Err sp_load(SpModel **model, const char *bytes, size_t len, const char *where) try {
  *model = nullptr;
  auto fresh = std::make_unique<SpModel>();
  auto status = fresh->processor.LoadFromSerializedProto(absl::string_view(bytes, len));
  if (!status.ok()) {
    return err_set(ERR_WORK, "%s is not a usable SentencePiece model: %s", where,
                   status.ToString().c_str());
  }
  *model = fresh.release();
  return ERR_OK;
} catch (const std::exception &e) {
  return report_failure("SentencePiece", e.what());
}

void sp_free(SpModel *model) {
  delete model;
}

int sp_size(const SpModel *model) {
  return model->processor.GetPieceSize();
}

Err sp_encode(const SpModel *model, const char *text, size_t len, bool (*put)(void *, int32_t),
              void *context) try {
  thread_local std::vector<int> ids;
  auto status = model->processor.Encode(absl::string_view(text, len), &ids);
  if (!status.ok()) return report_failure("SentencePiece cannot encode", status.ToString());
  for (int id : ids) {
    if (!put(context, id)) return ERR_WORK;
  }
  return ERR_OK;
} catch (const std::exception &e) {
  return report_failure("SentencePiece", e.what());
}

Err sp_encode_pieces(const SpModel *model, const char *text, size_t len,
                     bool (*put)(void *, const char *, size_t), void *context) try {
  std::vector<std::string> pieces;
  auto status = model->processor.Encode(absl::string_view(text, len), &pieces);
  if (!status.ok()) return report_failure("SentencePiece cannot encode", status.ToString());
  for (const std::string &piece : pieces) {
    if (!put(context, piece.data(), piece.size())) return ERR_WORK;
  }
  return ERR_OK;
} catch (const std::exception &e) {
  return report_failure("SentencePiece", e.what());
}

Err sp_decode_pieces(const SpModel *model, const char *const *piece, size_t n, Str *text) try {
  std::vector<std::string> in(piece, piece + n);
  std::string out;
  auto status = model->processor.Decode(as_list(in), &out);
  if (!status.ok()) return report_failure("SentencePiece cannot decode", status.ToString());
  str_addn(text, out.data(), out.size());
  return str_check(text);
} catch (const std::exception &e) {
  return report_failure("SentencePiece", e.what());
}

const char *sp_piece(const SpModel *model, int32_t id) {
  return model->processor.IdToPiece(id).c_str();
}

Err sp_decode(const SpModel *model, const int32_t *ids, size_t n, Str *text) try {
  std::vector<int> in(ids, ids + n);
  std::string out;
  auto status = model->processor.Decode(as_list(in), &out);
  if (!status.ok()) return report_failure("SentencePiece cannot decode", status.ToString());
  str_addn(text, out.data(), out.size());
  return str_check(text);
} catch (const std::exception &e) {
  return report_failure("SentencePiece", e.what());
}

namespace {
class Lines : public sp::SentenceIterator {
 public:
  Lines(bool (*next)(void *, const char **, size_t *), void *context)
      : next_(next), context_(context) {
    Next();
  }
  bool done() const override {
    return done_;
  }
  void Next() override {
    const char *line;
    size_t len;
    done_ = !next_(context_, &line, &len);
    if (!done_) value_.assign(line, len);
  }
  const std::string &value() const override {
    return value_;
  }
  Status status() const override {
    return Status();
  }

 private:
  bool (*next_)(void *, const char **, size_t *);
  void *context_;
  bool done_ = false;
  std::string value_;
};
}  // namespace

Err sp_train(const TokenizerTraining *spec, bool (*next)(void *, const char **, size_t *),
             void *context, Str *out) try {
  std::unordered_map<std::string, std::string> options = {
      {"model_type", spec->type},
      {"vocab_size", std::to_string(spec->vocab_size)},
      {"character_coverage", std::to_string(spec->character_coverage)},
      {"pad_id", "0"},
      {"eos_id", "1"},
      {"bos_id", "2"},
      {"unk_id", "3"},
      // Fixed: the sums of unigram training, and so the bytes of the model, depend on it.
      {"num_threads", "16"},
      {"max_sentence_length", "65536"},
      {"minloglevel", "2"},
  };
  Lines lines(next, context);
  std::string model;
  auto status = sp::SentencePieceTrainer::Train(options, &lines, &model);
  if (!status.ok()) return report_failure("SentencePiece cannot train", status.ToString());
  str_addn(out, model.data(), model.size());
  return str_check(out);
} catch (const std::exception &e) {
  return report_failure("SentencePiece", e.what());
}
