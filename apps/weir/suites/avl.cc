// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval avl: questions about pictures of which shares are stored and read.
#include <memory>

#include "suites/suite.h"
#include "suites/vqa_flags.h"

namespace weir::app {
namespace {

// S, C, K, P and T of the A-VL paper's tables, beside the whole cache and other methods at about half of it.
constexpr const char* kAvlGrid =
    "full;a_vl:S=0.4,K=0;a_vl:S=0.4,C=0.3,K=3;a_vl:S=0.45,C=0.3,K=3;a_vl:S=0.45,C=0.3,K=3,P=0.9;"
    "a_vl:S=0.45,C=0.3,K=3,P=0.9,T=0.7;a_vl:S=0.45,C=0.3,K=3,P=0.9,T=0.6;a_vl:S=0.45,C=0.3,K=3,P=0.9,T=0.5;"
    "fastv:K=2,R=0.5;fastv:K=2,R=0.75;h2o";

Action AddAvl(CLI::App& sub) {
  auto flags = std::make_shared<VqaFlags>();
  flags->run.share = 0.5;
  flags->run.viewer.n_decode = 32;
  AddVqaFlags(sub, flags.get(), kAvlGrid);
  sub.add_option("--share", flags->run.share,
                 "pot size, as a share of the longest prompt, for policies that evict when the pot is full; policies "
                 "that trim a prompt themselves get room for all of it. 0 = --pot for all policies")
      ->check(CLI::Range(0.0, 1.0).description(""))
      ->capture_default_str();
  sub.add_option(
         "--decode", flags->run.viewer.n_decode,
         "tokens decoded per question, continuing after the end of the answer; latency and shares are means over them")
      ->check(Between(0, 1 << 12))
      ->capture_default_str();
  return [=] { return RunPictureExam(flags->run, MakeVqaExam("avl", *flags)); };
}

}  // namespace

extern const SuiteInfo kAvl;
const SuiteInfo kAvl = {.name = "avl",
                        .summary = "vqa that stores and reads only shares of the pictures: A-VL against FastV and H2O",
                        .add = AddAvl};

}  // namespace weir::app
