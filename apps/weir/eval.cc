// weir eval: the protocols that results are measured with. One JSON line per figure; a file per suite.
#include "eval_common.h"

namespace weir::app {

void AddEval(CLI::App& app, int* code) {
  CLI::App* sub = app.add_subcommand("eval", "measure a model and a policy with the papers' protocols");
  sub->require_subcommand(1);
  AddEvalPpl(*sub, code);
  AddEvalLines(*sub, code);
  AddEvalPasskey(*sub, code);
  AddEvalNeedle(*sub, code);
  AddEvalStreamQa(*sub, code);
  AddEvalLongBench(*sub, code);
  AddEvalVqa(*sub, code);
  AddEvalVideoQa(*sub, code);
  AddEvalStreamVideo(*sub, code);
  AddEvalCatp(*sub, code);
  AddEvalAvl(*sub, code);
  AddEvalGreedy(*sub, code);
}

}  // namespace weir::app
