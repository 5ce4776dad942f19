#include "eval/viewer.h"

#include <algorithm>
#include <chrono>

#include "chat/generate.h"
#include "engine/picture_parts.h"

namespace weir {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string PutInto(const std::string& form, const std::string& question) {
  constexpr std::string_view kPlace = "{question}";
  std::string out;
  size_t from = 0;
  for (size_t at; (at = form.find(kPlace, from)) != std::string::npos; from = at + kPlace.size()) {
    out += form.substr(from, at - from) + question;
  }
  return out + form.substr(from);
}

bool EndsInSpace(std::string_view text) { return text.empty() || text.back() == ' ' || text.back() == '\n'; }

// Whether an answer to `form` that is told needs a space before it: not where a template's words between them bring
// one.
bool NeedsSpace(const std::string& form, const std::vector<TextPiece>& between) {
  for (auto piece = between.rbegin(); piece != between.rend(); ++piece) {
    if (!piece->text.empty()) return !EndsInSpace(piece->text);
  }
  return !EndsInSpace(form);
}

}  // namespace

Viewer::Viewer(Session& session, EncodedPictures& pictures, const Tokenizer& tokenizer, const ChatTemplate* chat,
               const ViewerOptions& options, const std::atomic<bool>* stop)
    : session_(session), pictures_(pictures), tokenizer_(tokenizer), chat_(chat), options_(options), stop_(stop) {}

Status Viewer::Begin() {
  session_.Reset();
  n_tokens_ = n_pictures_ = 0;
  at_start_ = true;
  turn_open_ = false;
  pending_.clear();
  after_.clear();
  if (chat_ != nullptr) {
    rounds_.emplace(*chat_);
    pending_ = rounds_->System(std::nullopt);
  }
  return Status();
}

Viewer::Turn Viewer::NextTurn(ChatRounds& rounds) {
  // Stands for the user's words while the template's around them are looked for.
  constexpr const char* kContent = "text";
  const std::vector<TextPiece> pieces = rounds.User(kContent);
  const auto content = std::find_if(pieces.begin(), pieces.end(),
                                    [&](const TextPiece& p) { return !p.parse_special && p.text == kContent; });
  if (content == pieces.end()) return {pieces, {}};
  return {{pieces.begin(), content}, {content + 1, pieces.end()}};
}

void Viewer::OpenTurn() {
  if (turn_open_) return;
  turn_open_ = true;
  if (chat_ == nullptr) {
    if (!at_start_) pending_.push_back({"\n", false});
    return;
  }
  Turn turn = NextTurn(*rounds_);
  pending_.insert(pending_.end(), turn.before.begin(), turn.before.end());
  after_ = std::move(turn.after);
}

Status Viewer::Read(std::vector<TextPiece> pieces) {
  pending_.insert(pending_.end(), pieces.begin(), pieces.end());
  const std::vector<int32_t> tokens =
      tokenizer_.EncodePieces(pending_, at_start_ && !(chat_ != nullptr && chat_->includes_bos()));
  pending_.clear();
  at_start_ = false;
  return ReadTokens(tokens, {});
}

Status Viewer::ReadTokens(std::span<const int32_t> tokens, const Session::AppendOptions& options) {
  const auto start = Clock::now();
  Session::AppendOptions append = options;
  append.stop = stop_;
  append.t_src_ms = t_ms();
  if (!tokens.empty()) WEIR_RETURN_IF_ERROR(session_.Append(tokens, append));
  n_tokens_ += std::ssize(tokens);
  cost_.read_tokens += std::ssize(tokens);
  cost_.read_s += SecondsSince(start);
  return Status();
}

Status Viewer::Show(std::string_view lead, std::span<const std::string> pictures) {
  OpenTurn();
  WEIR_RETURN_IF_ERROR(Read({{std::string(lead), false}}));
  for (const std::string& path : pictures) {
    WEIR_ASSIGN_OR_RETURN(const EncodedPicture picture, pictures_.Get(path, options_.video));
    WEIR_RETURN_IF_ERROR(ReadPicture(picture));
    ++n_pictures_;
  }
  return Status();
}

Status Viewer::ReadPicture(const EncodedPicture& picture) {
  const auto start = Clock::now();
  Session::AppendOptions append;
  append.stop = stop_;
  append.t_src_ms = t_ms();
  const int64_t n_before = session_.n_seen();
  WEIR_RETURN_IF_ERROR(AppendParts(pictures_.config(), picture.parts, picture.rows,
                                   options_.video ? Modality::kVideo : Modality::kImage, session_, append));
  const int64_t n_read = session_.n_seen() - n_before;
  n_tokens_ += n_read;
  cost_.read_tokens += n_read;
  cost_.read_s += SecondsSince(start);
  return Status();
}

Status Viewer::ReadQuestion(const std::string& question) {
  OpenTurn();
  pending_.push_back({PutInto(options_.form, question), false});
  pending_.insert(pending_.end(), after_.begin(), after_.end());
  const std::vector<int32_t> tokens =
      tokenizer_.EncodePieces(pending_, at_start_ && !(chat_ != nullptr && chat_->includes_bos()));
  pending_.clear();
  at_start_ = turn_open_ = false;
  WEIR_RETURN_IF_ERROR(session_.BeginRound(tokens, options_.n_answer));
  Session::AppendOptions append;
  append.end_of_prompt = true;
  return ReadTokens(tokens, append);
}

void Viewer::TakeShares(ViewerReply* reply) const {
  const Pot& pot = session_.pot();
  const PotShape& shape = pot.shape();
  int64_t n_held = 0, n_visual = 0;
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    const std::span<const SlotMeta> slots = pot.meta(group);
    n_held += std::ssize(slots);
    n_visual +=
        std::count_if(slots.begin(), slots.end(), [](const SlotMeta& s) { return s.modality != Modality::kText; });
  }
  const SessionCounters counters = session_.counters();
  const int64_t n_seen_visual = counters.seen - counters.by[static_cast<size_t>(Modality::kText)].seen;
  const double groups = shape.n_groups();
  reply->stored_share = static_cast<double>(n_held) / (groups * static_cast<double>(counters.seen));
  if (n_seen_visual > 0) {
    reply->stored_visual_share = static_cast<double>(n_visual) / (groups * static_cast<double>(n_seen_visual));
  }
  const int64_t slot_bytes = RowBytes(shape.k_type, shape.head_dim) + RowBytes(shape.v_type, shape.head_dim);
  reply->kv_bytes = n_held * (shape.n_heads_total() / shape.n_groups()) * slot_bytes;
}

double Viewer::UsedShare() const {
  return static_cast<double>(session_.n_slots_read()) /
         (static_cast<double>(session_.pot().shape().n_groups()) * static_cast<double>(session_.n_seen()));
}

Result<ViewerReply> Viewer::Answer(int32_t n_least) {
  ViewerReply reply;
  TakeShares(&reply);
  SamplerOptions greedy;
  greedy.temperature = 0;
  WEIR_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create(greedy));
  std::vector<int32_t> answer;
  bool ended = false, end_token_read = false;
  const auto start = Clock::now();
  int32_t n_written = 0;
  for (; n_written < n_least || !ended; ++n_written) {
    if (stop_ != nullptr && *stop_) return Cancelled("stopped while answering");
    WEIR_ASSIGN_OR_RETURN(const int32_t token, DrawToken(session_, sampler));
    if (!ended) {
      end_token_read = tokenizer_.IsEndOfGeneration(token);
      if (!end_token_read) answer.push_back(token);
      // Without a template nothing but a new line may say that the answer is over.
      ended = end_token_read || std::ssize(answer) >= options_.n_answer ||
              (chat_ == nullptr && tokenizer_.Decode(answer).find('\n', 1) != std::string::npos);
    }
    Session::AppendOptions append;
    append.generated = true;
    append.t_src_ms = t_ms();
    WEIR_RETURN_IF_ERROR(session_.Append({&token, 1}, append));
    ++n_tokens_;
    reply.used_share += UsedShare();
  }
  const double seconds = SecondsSince(start);
  reply.used_share /= n_written;
  reply.ms_per_token = 1000 * seconds / n_written;
  cost_.answer_tokens += n_written;
  cost_.answer_s += seconds;
  reply.text = tokenizer_.Decode(answer);
  reply.text.erase(0, std::min(reply.text.find_first_not_of(" \n"), reply.text.size()));
  reply.text = reply.text.substr(0, reply.text.find('\n'));
  if (chat_ != nullptr) pending_ = rounds_->EndAnswer(end_token_read);
  return reply;
}

Result<ViewerReply> Viewer::Ask(const std::string& question) {
  WEIR_RETURN_IF_ERROR(ReadQuestion(question));
  return Answer(0);
}

Result<ViewerReply> Viewer::AskAside(const std::string& question) {
  WEIR_RETURN_IF_ERROR(session_.Save(&mark_));
  const std::optional<ChatRounds> rounds = rounds_;
  const std::vector<TextPiece> pending = pending_, after = after_;
  const bool at_start = at_start_, turn_open = turn_open_;
  const int64_t n_tokens = n_tokens_;
  WEIR_RETURN_IF_ERROR(ReadQuestion(question));
  WEIR_ASSIGN_OR_RETURN(ViewerReply reply, Answer(options_.n_decode));
  WEIR_RETURN_IF_ERROR(session_.Restore(mark_));
  if (rounds.has_value()) rounds_.emplace(*rounds);
  pending_ = pending;
  after_ = after;
  at_start_ = at_start;
  turn_open_ = turn_open;
  n_tokens_ = n_tokens;
  return reply;
}

Status Viewer::Tell(const std::string& question, const std::string& answer) {
  OpenTurn();
  const bool space = NeedsSpace(options_.form, after_);
  WEIR_RETURN_IF_ERROR(ReadQuestion(question));
  std::vector<int32_t> tokens =
      tokenizer_.EncodePieces(std::vector<TextPiece>{{(space ? " " : "") + answer, false}}, false);
  const bool ends = tokenizer_.eos_id() >= 0;
  if (ends) tokens.push_back(tokenizer_.eos_id());
  Session::AppendOptions append;
  append.generated = true;
  WEIR_RETURN_IF_ERROR(ReadTokens(tokens, append));
  if (chat_ != nullptr) pending_ = rounds_->EndAnswer(ends);
  return Status();
}

int64_t Viewer::RoundTokens(const Tokenizer& tokenizer, const ChatTemplate* chat, const std::string& form,
                            const std::string& lead, const std::string& question) {
  std::vector<TextPiece> before, after;
  if (chat != nullptr) {
    ChatRounds rounds(*chat);
    before = rounds.System(std::nullopt);
    const Turn turn = NextTurn(rounds);
    before.insert(before.end(), turn.before.begin(), turn.before.end());
    after = turn.after;
  }
  before.push_back({lead, false});
  after.insert(after.begin(), {PutInto(form, question), false});
  return std::ssize(tokenizer.EncodePieces(before, chat == nullptr || !chat->includes_bos())) +
         std::ssize(tokenizer.EncodePieces(after, false));
}

}  // namespace weir
