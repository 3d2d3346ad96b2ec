/* Compares BERT models with Hugging Face transformers: logits, all gradients and ten steps of AdamW
 * for each head, on every backend. tests/golden/bert has the expected values and the script that
 * made them. */
#include "bert_support.h"
#include "format/safetensors.h"

#define LOGIT_TOLERANCE 1e-5 /* largest relative error of a norm */
#define GRAD_TOLERANCE  1e-4

static void open_golden(SafeFile *golden, const char *form) {
  char path[64];
  snprintf(path, sizeof path, "tests/golden/bert/%s.safetensors", form);
  OK(safetensors_open(golden, path));
}

static void read_golden(const SafeFile *golden, const char *kind, const char *name, float *out,
                        uint64_t count) {
  char full[96];
  snprintf(full, sizeof full, "%s%s", kind, name);
  const SafeTensor *t = safetensors_find(golden, full);
  if (!t) fail_msg("the golden file has no %s", full);
  OK(safetensors_read(golden, t, out, count));
}

static void check_logits(Fixture *f, const SafeFile *golden, const char *form,
                         const char *name) {
  float expected[MASKED * 29];
  run_step(f, NULL, (StepKey){0}, &(ModelPass){0});
  read_golden(golden, "", name, expected, logit_count(f));
  assert_close(form, name, bert_output(f->bert), expected, logit_count(f), LOGIT_TOLERANCE);
}

static void check_gradients(const char *form, bool reference) {
  Fixture f;
  SafeFile golden;
  float expected[4096];
  size_t gradients = 0;
  open_form(&f, form, reference);
  open_golden(&golden, form);
  check_logits(&f, &golden, form, "logits");
  ModelPass pass = {.scale = 1 / (float)predictions_of(&f)};
  ModelLoss loss = run_step(&f, f.g, (StepKey){.first = true}, &pass);
  assert_int_equal(loss.predictions, predictions_of(&f));
  const Params *p = &f.model->params;
  for (size_t i = 0; i < p->count; i++) {
    const Param *q = &p->param[i];
    assert_true(q->rows * q->cols <= 4096);
    read_golden(&golden, "grad/", q->name, expected, q->rows * q->cols);
    assert_close(form, q->name, f.g + q->offset, expected, q->rows * q->cols, GRAD_TOLERANCE);
  }
  for (size_t i = 0; i < golden.tensors; i++)
    gradients += strncmp(golden.tensor[i].name, "grad/", 5) == 0;
  assert_int_equal(gradients, p->count); /* both models have the same parameters */
  safetensors_close(&golden);
  close_fixture(&f);
}

static void test_bert_logits_and_gradients_equal_transformers(void **state) {
  (void)state;
  for (size_t i = 0; i < FORMS; i++) {
    check_gradients(forms[i], true);
    check_gradients(forms[i], false);
  }
}

/* One step of AdamW, without decay of biases and norms. */
static void update_weights(Fixture *f, int step) {
  const Params *p = &f->model->params;
  StepNumbers now = {.lr = 1e-3f, .grad_scale = 1};
  now.correction1 = 1 - powf(0.9f, (float)(step + 1));
  now.correction2 = (float)(1 - pow(0.999, step + 1));
  AdamStep adam = {
      .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f, .now = &now, .lr_factor = 1};
  for (size_t i = 0; i < p->count; i++) {
    const Param *q = &p->param[i];
    adam.decay = q->cols > 1 ? 0.01f : 0;
    f->backend.adam(&f->backend, f->w + q->offset, f->m + q->offset, f->v + q->offset,
                    f->g + q->offset, q->rows * q->cols, &adam);
  }
}

static void check_ten_steps(const char *form, bool reference) {
  Fixture f;
  SafeFile golden;
  float losses[10];
  open_form(&f, form, reference);
  open_golden(&golden, form);
  read_golden(&golden, "", "losses", losses, 10);
  double n = (double)predictions_of(&f);
  ModelPass pass = {.scale = (float)(1 / n)};
  for (int step = 0; step < 10; step++) {
    double loss = run_step(&f, f.g, (StepKey){.first = true}, &pass).sum[0] / n;
    if (!(fabs(loss - losses[step]) < LOGIT_TOLERANCE * losses[step]))
      fail_msg("%s: loss %d is %.8g, transformers has %.8g", form, step, loss,
               (double)losses[step]);
    update_weights(&f, step);
  }
  check_logits(&f, &golden, form, "logits10");
  safetensors_close(&golden);
  close_fixture(&f);
}

static void test_bert_10_adamw_steps_equal_transformers(void **state) {
  (void)state;
  for (size_t i = 0; i < FORMS; i++) {
    check_ten_steps(forms[i], true);
    check_ten_steps(forms[i], false);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bert_logits_and_gradients_equal_transformers),
      cmocka_unit_test(test_bert_10_adamw_steps_equal_transformers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
