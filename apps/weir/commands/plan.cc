// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir plan: the whole ledger of a session, before anything is allocated.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "chat/form_memory.h"
#include "commands/command.h"
#include "engine/session/aside_room.h"
#include "io/json.h"
#include "pictures.h"
#include "print.h"
#include "recall_flags.h"
#include "rule_watch.h"

namespace weir::app {
namespace {

Status Plan(const ModelFlags& model_flags, PotFlags pot_flags, PictureFlags* pictures, const RuleFlags& rule_flags,
            const std::string& form_memory, const std::string& format) {
  if (!form_memory.empty()) {
    WEIR_ASSIGN_OR_RETURN(pot_flags.form_bytes, ParseBytes(form_memory));
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<Rule> rules, ParseRules(rule_flags));
  if (!rules.empty()) {
    WEIR_RETURN_IF_ERROR(AddRuleRoom(rule_flags, &pot_flags));
  }
  WEIR_ASSIGN_OR_RETURN(SessionOptions options, ToSessionOptions(pot_flags));
  WEIR_ASSIGN_OR_RETURN(const PrunerSpec prune, ToPruner(*pictures));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model, Load(model_flags, /*plan_only=*/true));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedDraft> draft, LoadDraft(pot_flags.guesses, *model, &options));
  WEIR_RETURN_IF_ERROR(AddProbe(*model, model_flags, /*in_chat=*/true, std::nullopt, &options));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedEncoder> encoder, LoadPictureEncoder(*pictures, *model));
  options.pictures = encoder != nullptr;
  if (encoder != nullptr) {
    const bool none_yet = pictures->images.empty() && pictures->videos.empty();
    WEIR_ASSIGN_OR_RETURN(const PictureRoom room, MeasurePictures(pictures, none_yet));
    WEIR_ASSIGN_OR_RETURN(const auto beside, PictureReader::Plan(encoder->encoder(), room, prune));
    options.beside.insert(options.beside.end(), beside.begin(), beside.end());
  }
  WEIR_ASSIGN_OR_RETURN(RecallOptions recall, ToRecallOptions(pot_flags.recall));
  if (encoder != nullptr) recall.max_rows = encoder->encoder().config().max_rows();
  WEIR_RETURN_IF_ERROR(AddRecall(recall, *model, &options));
  WEIR_RETURN_IF_ERROR(AddForms(pot_flags.form_bytes, &options));
  const int64_t vocab_bytes = pot_flags.form_bytes == 0 ? 0 : FormVocab::Make(model->tokenizer())->n_bytes();
  WEIR_ASSIGN_OR_RETURN(const SessionPlan plan, PlanSession(model->model(), model->backend(), options));
  int64_t check_tokens = 0;
  if (!rules.empty()) {
    WEIR_ASSIGN_OR_RETURN(check_tokens, TokensOfACheck(rules, *model, model_flags, AsideRoom(plan)));
  }
  if (format == "json") {
    nlohmann::ordered_json json;
    json["model"] = model->file().path();
    json["policy"] = options.policy.text;
    if (prune.info != nullptr) json["prune"] = prune.text;
    json["pot"] = plan.pot_slots;
    if (recall.on()) json["recall"] = {{"selector", recall.spec.text}, {"tokens", plan.excerpt_slots}};
    if (!rules.empty()) json["rules"] = {{"count", rules.size()}, {"tokens_per_check", check_tokens}};
    json["chunk"] = plan.chunk_rows;
    json["weights_bytes"] = model->ledger().used_bytes();
    if (encoder != nullptr) json["encoder_weights_bytes"] = encoder->ledger().used_bytes();
    if (draft != nullptr) json["draft_weights_bytes"] = draft->ledger().used_bytes();
    if (vocab_bytes > 0) json["form_vocabulary_bytes"] = vocab_bytes;
    for (const PlanItem& item : plan.items)
      json["items"].push_back({{"tag", MemTagName(item.tag)}, {"what", item.what}, {"bytes", item.bytes}});
    json["session_bytes"] = plan.total_bytes;
    json["minimum_bytes"] = plan.minimum_bytes;
    Print(stdout, "{}\n", JsonText(json));
    return Status();
  }
  Print(stdout, "session: pot of {} tokens, policy {}\n", plan.pot_slots, options.policy.text);
  for (const PlanItem& item : plan.items) {
    Print(stdout, "  {:<10} {:>14}  {}\n", MemTagName(item.tag), CountText(item.bytes), item.what);
  }
  Print(stdout, "  {:<10} {:>14}  {}, fixed before the first token\n", "session", CountText(plan.total_bytes),
        BytesText(plan.total_bytes));
  Print(stdout, "shared by all sessions:\n  {:<10} {:>14}  prepared from {}\n", "weights",
        CountText(model->ledger().used_bytes()), model->file().path());
  if (encoder != nullptr) {
    Print(stdout, "  {:<10} {:>14}  prepared from {}\n", "weights", CountText(encoder->ledger().used_bytes()),
          pictures->mmproj);
  }
  if (draft != nullptr) {
    Print(stdout, "  {:<10} {:>14}  prepared from {}\n", "weights", CountText(draft->ledger().used_bytes()),
          draft->file().path());
  }
  if (vocab_bytes > 0) {
    Print(stdout, "  {:<10} {:>14}  the vocabulary as forms see it\n", MemTagName(MemTag::kOther),
          CountText(vocab_bytes));
  }
  if (!rules.empty()) Print(stdout, "rules: {}, {} tokens read aside at every check\n", rules.size(), check_tokens);
  Print(stdout, "smallest budget that works here: {} bytes\n", CountText(plan.minimum_bytes));
  return Status();
}

Action AddPlan(CLI::App& sub) {
  auto model = std::make_shared<ModelFlags>();
  auto pot = std::make_shared<PotFlags>();
  auto pictures = std::make_shared<PictureFlags>();
  auto rules = std::make_shared<RuleFlags>();
  auto forms = std::make_shared<std::string>();
  auto format = std::make_shared<std::string>("text");
  AddModelFlags(sub, model.get());
  AddPotFlags(sub, pot.get());
  AddGuessFlags(sub, &pot->guesses);
  AddRecallFlags(sub, &pot->recall);
  AddEncoderFlags(sub, pictures.get());
  AddPictureFlags(sub, pictures.get());
  AddRuleFlags(sub, rules.get());
  sub.add_option("--form-memory", *forms, "memory for an answer that is held to a form; `weir run` takes 16MiB")
      ->check(NotEmpty())
      ->type_name("BYTES");
  sub.add_option("-o,--output", *format, "text or json")->check(CLI::IsMember({"text", "json"}))->capture_default_str();
  return [=] { return Plan(*model, *pot, pictures.get(), *rules, *forms, *format); };
}

}  // namespace

extern const CommandInfo kPlan;
const CommandInfo kPlan = {.name = "plan",
                           .summary = "print every byte a session will use, without allocating it",
                           .group = CommandGroup::kInspect,
                           .add = AddPlan};

}  // namespace weir::app
