// SPDX-License-Identifier: Apache-2.0
// A parser by recursive descent; the functions have the names and the order of Jinja2's grammar. Errors stick: the
// first is kept, and from there on every token reads as the end of the template.
//
// One file: the expressions and the statements call each other.
#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "text/jinja/letters.h"
#include "text/jinja/lexer.h"

namespace weir::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<NodePtr> Run() {
    NodePtr root = Make(NodeKind::kBlock);
    root->body = Statements({});
    if (ok() && now().kind != TokenKind::kEnd) Fail("'" + now().text + "' without what it ends");
    Measure(root.get());
    if (!status_.ok()) return status_;
    return root;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  bool ok() const { return status_.ok(); }
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void Next() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  void Fail(const std::string& what) {
    if (ok()) status_ = InvalidArgument("line {} of the chat template: {}", now().line, OneLine(what));
    at_ = tokens_.size() - 1;
  }
  bool SkipOp(std::string_view op) {
    if (!now().IsOp(op)) return false;
    Next();
    return true;
  }
  bool SkipName(std::string_view name) {
    if (!now().IsName(name)) return false;
    Next();
    return true;
  }
  void WantOp(std::string_view op) {
    if (!SkipOp(op)) Fail("expected '" + std::string(op) + "'" + Found());
  }
  void WantName(std::string_view name) {
    if (!SkipName(name)) Fail("expected '" + std::string(name) + "'" + Found());
  }
  std::string WantAnyName() {
    if (now().kind != TokenKind::kName) {
      Fail("expected a name" + Found());
      return "";
    }
    std::string name = now().text;
    Next();
    return name;
  }
  std::string Found() const {
    if (now().kind == TokenKind::kEnd) return ", but the template ends";
    if (now().kind == TokenKind::kBlockEnd) return " before '%}'";
    if (now().kind == TokenKind::kPrintEnd) return " before '}}'";
    return ", found '" + now().text.substr(0, 40) + "'";
  }
  void WantBlockEnd() {
    if (now().kind != TokenKind::kBlockEnd) return Fail("expected '%}'" + Found());
    Next();
  }

  // Nodes are made through here, and measured once their parts are known. A tree that is too deep is never finished:
  // its parts were measured before.
  NodePtr Make(NodeKind kind) const {
    auto out = std::make_unique<Node>();
    out->kind = kind;
    out->line = now().line;
    return out;
  }
  void Measure(Node* node) {
    int depth = 0;
    const auto see = [&](const NodePtr& part) {
      if (part != nullptr) depth = std::max(depth, part->depth);
    };
    for (const NodePtr* part : {&node->a, &node->b, &node->c, &node->star, &node->star_star}) see(*part);
    for (const auto* list : {&node->list, &node->defaults, &node->body, &node->orelse}) {
      for (const NodePtr& part : *list) see(part);
    }
    for (const auto& [name, part] : node->named) see(part);
    node->depth = depth + 1;
    if (node->depth > kMaxTreeDepth) Fail("nested too deeply");
  }
  NodePtr Done(NodePtr node) {
    Measure(node.get());
    return node;
  }
  // A part that is missing after an error.
  NodePtr Nothing() const { return Make(NodeKind::kConst); }

  // Counts the nesting of the functions below.
  class Level {
   public:
    explicit Level(Parser* parser) : parser_(parser) {
      if (++parser_->level_ > kMaxTreeDepth) parser_->Fail("nested too deeply");
    }
    ~Level() { --parser_->level_; }

   private:
    Parser* parser_;
  };

  // ---- Statements ----

  bool AtTag(Names names) const {
    return now().kind == TokenKind::kBlockBegin && ahead().kind == TokenKind::kName &&
           std::find(names.begin(), names.end(), ahead().text) != names.end();
  }

  // Statements up to one of the tags `ends`, whose name is then the next token; up to the end of the template if there
  // are none.
  std::vector<NodePtr> Statements(Names ends) {
    const Level level(this);
    std::vector<NodePtr> out;
    while (ok()) {
      if (now().kind == TokenKind::kEnd) {
        if (ends.size() > 0) Fail("'{% " + std::string(*(ends.end() - 1)) + " %}' is missing");
        break;
      }
      if (now().kind == TokenKind::kData) {
        NodePtr data = Make(NodeKind::kData);
        data->value = Value::Words(now().text);
        out.push_back(std::move(data));
        Next();
      } else if (now().kind == TokenKind::kPrintBegin) {
        Next();
        NodePtr print = Make(NodeKind::kPrint);
        print->list.push_back(Tuple());
        if (now().kind != TokenKind::kPrintEnd) Fail("expected '}}'" + Found());
        Next();
        out.push_back(Done(std::move(print)));
      } else if (AtTag(ends)) {
        Next();
        break;
      } else {
        Next();
        out.push_back(Statement());
      }
    }
    return out;
  }

  // The body of a tag, from behind its opening to behind the name of its end.
  std::vector<NodePtr> Body(Names ends) {
    WantBlockEnd();
    return Statements(ends);
  }
  void CloseTag(std::string_view name) {
    WantName(name);
    WantBlockEnd();
  }

  NodePtr Statement() {
    const std::string tag = now().kind == TokenKind::kName ? now().text : "";
    if (tag == "for") return For();
    if (tag == "if") return If();
    if (tag == "set") return Set();
    if (tag == "macro") return Macro();
    if (tag == "call") return CallBlock();
    if (tag == "filter") return FilterBlock();
    if (tag == "with") return With();
    if (tag == "generation") return Generation();
    if (tag == "print") return Print();
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) Fail("'" + tag + "' outside a loop");
      NodePtr out = Make(tag == "break" ? NodeKind::kBreak : NodeKind::kContinue);
      Next();
      WantBlockEnd();
      return out;
    }
    for (const char* other : {"include", "import", "from", "extends", "block"}) {
      if (tag == other) Fail("'" + tag + "' needs other templates, and a chat template has none");
    }
    Fail("unknown tag" + Found());
    return Nothing();
  }

  NodePtr Print() {
    NodePtr out = Make(NodeKind::kPrint);
    Next();
    while (ok() && now().kind != TokenKind::kBlockEnd) {
      if (!out->list.empty()) WantOp(",");
      out->list.push_back(Expression());
    }
    WantBlockEnd();
    return Done(std::move(out));
  }

  NodePtr For() {
    NodePtr out = Make(NodeKind::kFor);
    Next();
    out->a = Target(false);
    WantName("in");
    out->b = Tuple(/*with_if=*/false, "recursive");
    if (SkipName("if")) out->c = Expression();
    if (now().IsName("recursive")) Fail("recursive loops are not supported");
    ++loops_;
    out->body = Body({"else", "endfor"});
    --loops_;
    if (SkipName("else")) out->orelse = Body({"endfor"});
    CloseTag("endfor");
    return Done(std::move(out));
  }

  NodePtr If() {
    ++conditions_;
    NodePtr out = Make(NodeKind::kBranches);
    while (ok()) {
      Next();  // if, elif
      out->list.push_back(Tuple(/*with_if=*/false));
      NodePtr block = Make(NodeKind::kBlock);
      block->body = Body({"elif", "else", "endif"});
      out->list.push_back(Done(std::move(block)));
      if (!now().IsName("elif")) break;
    }
    if (SkipName("else")) {
      out->c = Make(NodeKind::kBlock);
      out->c->body = Body({"endif"});
      Measure(out->c.get());
    }
    CloseTag("endif");
    --conditions_;
    return Done(std::move(out));
  }

  NodePtr Set() {
    NodePtr out = Make(NodeKind::kSet);
    Next();
    out->a = Target(true);
    if (SkipOp("=")) {
      out->b = Tuple();
      WantBlockEnd();
      return Done(std::move(out));
    }
    out->kind = NodeKind::kSetBlock;
    if (now().IsOp("|")) out->b = Filters(nullptr);
    out->body = Body({"endset"});
    CloseTag("endset");
    return Done(std::move(out));
  }

  // What a loop or an assignment writes to: a name, several, or a namespace's attribute.
  NodePtr Target(bool with_namespace) {
    const Level level(this);
    if (with_namespace && ahead().IsOp(".")) {
      NodePtr out = Make(NodeKind::kName);
      out->name = WantAnyName();
      Next();
      out->ops.push_back(WantAnyName());
      out->namespaced = true;
      return out;
    }
    NodePtr out = Make(NodeKind::kTuple);
    bool several = false;
    while (ok()) {
      if (SkipOp("(")) {
        out->list.push_back(Target(false));
        WantOp(")");
      } else {
        NodePtr name = Make(NodeKind::kName);
        name->name = WantAnyName();
        for (const char* word : {"true", "false", "none", "True", "False", "None"}) {
          if (name->name == word) Fail("'" + name->name + "' cannot be assigned to");
        }
        out->list.push_back(std::move(name));
      }
      if (!SkipOp(",")) break;
      several = true;
      if (now().IsName("in") || now().IsOp("=") || now().IsOp(")")) break;
    }
    if (!several && out->list.size() == 1) return std::move(out->list[0]);
    return Done(std::move(out));
  }

  void Signature(Node* out) {
    WantOp("(");
    while (ok() && !now().IsOp(")")) {
      if (!out->parameters.empty()) WantOp(",");
      out->parameters.push_back(WantAnyName());
      if (out->parameters.size() > kMaxParameters) return Fail("more parameters than a macro may have");
      if (SkipOp("=")) {
        out->defaults.push_back(Expression());
      } else if (!out->defaults.empty()) {
        Fail("a parameter without a default follows one with a default");
      }
    }
    WantOp(")");
  }

  // A body that is a function of its own: it leaves no loop around it, and its special names are its own.
  std::vector<NodePtr> FunctionBody(Node* out, Names ends) {
    const int loops = std::exchange(loops_, 0);
    const size_t begin = at_;
    std::vector<NodePtr> body = Body(ends);
    for (size_t i = begin; i < at_; ++i) {
      out->uses_varargs |= tokens_[i].IsName("varargs");
      out->uses_kwargs |= tokens_[i].IsName("kwargs");
      out->uses_caller |= tokens_[i].IsName("caller");
    }
    loops_ = loops;
    return body;
  }

  NodePtr Macro() {
    NodePtr out = Make(NodeKind::kMacro);
    Next();
    out->name = WantAnyName();
    Signature(out.get());
    out->body = FunctionBody(out.get(), {"endmacro"});
    CloseTag("endmacro");
    return Done(std::move(out));
  }

  NodePtr CallBlock() {
    NodePtr out = Make(NodeKind::kCallBlock);
    Next();
    if (now().IsOp("(")) Signature(out.get());
    out->a = Expression();
    if (out->a->kind != NodeKind::kCall) Fail("'call' needs the call of a macro");
    out->body = FunctionBody(out.get(), {"endcall"});
    CloseTag("endcall");
    return Done(std::move(out));
  }

  NodePtr FilterBlock() {
    NodePtr out = Make(NodeKind::kFilterBlock);
    Next();
    out->b = Filters(nullptr, /*begun=*/true);
    out->body = Body({"endfilter"});
    CloseTag("endfilter");
    return Done(std::move(out));
  }

  NodePtr With() {
    NodePtr out = Make(NodeKind::kWith);
    Next();
    while (ok() && now().kind != TokenKind::kBlockEnd) {
      if (!out->list.empty()) WantOp(",");
      out->list.push_back(Target(false));
      WantOp("=");
      out->list.push_back(Expression());
    }
    out->body = Body({"endwith"});
    CloseTag("endwith");
    return Done(std::move(out));
  }

  // Marks an assistant's words for training; here they are just words.
  NodePtr Generation() {
    NodePtr out = Make(NodeKind::kBlock);
    Next();
    out->scoped = true;
    const int loops = std::exchange(loops_, 0);
    out->body = Body({"endgeneration"});
    loops_ = loops;
    CloseTag("endgeneration");
    return Done(std::move(out));
  }

  // ---- Expressions ----

  NodePtr Expression(bool with_if = true) {
    const Level level(this);
    if (!ok()) return Nothing();
    return with_if ? Condition() : Or();
  }

  NodePtr Condition() {
    NodePtr out = Or();
    while (SkipName("if")) {
      ++conditions_;
      NodePtr whole = Make(NodeKind::kIf);
      whole->a = std::move(out);
      whole->b = Or();
      if (SkipName("else")) {
        const Level level(this);
        whole->c = ok() ? Condition() : Nothing();
      }
      out = Done(std::move(whole));
      --conditions_;
    }
    return out;
  }

  NodePtr Two(NodeKind kind, std::string op, NodePtr a, NodePtr b) {
    NodePtr out = Make(kind);
    out->name = std::move(op);
    out->a = std::move(a);
    out->b = std::move(b);
    return Done(std::move(out));
  }

  NodePtr Or() {
    NodePtr out = And();
    while (SkipName("or")) out = Two(NodeKind::kOr, "or", std::move(out), And());
    return out;
  }

  NodePtr And() {
    NodePtr out = Not();
    while (SkipName("and")) out = Two(NodeKind::kAnd, "and", std::move(out), Not());
    return out;
  }

  NodePtr Not() {
    const Level level(this);
    if (!ok()) return Nothing();
    if (!now().IsName("not")) return Compare();
    NodePtr out = Make(NodeKind::kNot);
    Next();
    out->a = Not();
    return Done(std::move(out));
  }

  NodePtr Compare() {
    NodePtr out = Sum();
    NodePtr whole;
    while (ok()) {
      std::string op;
      for (const char* one : {"==", "!=", "<", "<=", ">", ">="}) {
        if (now().IsOp(one)) op = one;
      }
      if (now().IsName("in")) op = "in";
      if (now().IsName("not") && ahead().IsName("in")) {
        op = "not in";
        Next();
      }
      if (op.empty()) break;
      Next();
      if (whole == nullptr) {
        whole = Make(NodeKind::kCompare);
        whole->list.push_back(std::move(out));
      }
      whole->ops.push_back(std::move(op));
      whole->list.push_back(Sum());
    }
    return whole == nullptr ? std::move(out) : Done(std::move(whole));
  }

  NodePtr Sum() {
    NodePtr out = Concat();
    while (now().IsOp("+") || now().IsOp("-")) {
      const std::string op = now().text;
      Next();
      out = Two(NodeKind::kBinary, op, std::move(out), Concat());
    }
    return out;
  }

  NodePtr Concat() {
    NodePtr first = Product();
    if (!now().IsOp("~")) return first;
    NodePtr out = Make(NodeKind::kConcat);
    out->list.push_back(std::move(first));
    while (SkipOp("~")) out->list.push_back(Product());
    return Done(std::move(out));
  }

  NodePtr Product() {
    NodePtr out = Power();
    while (now().IsOp("*") || now().IsOp("/") || now().IsOp("//") || now().IsOp("%")) {
      const std::string op = now().text;
      Next();
      out = Two(NodeKind::kBinary, op, std::move(out), Power());
    }
    return out;
  }

  NodePtr Power() {
    NodePtr out = Unary(true);
    while (SkipOp("**")) out = Two(NodeKind::kBinary, "**", std::move(out), Unary(true));
    return out;
  }

  NodePtr Unary(bool with_filter) {
    const Level level(this);
    if (!ok()) return Nothing();
    NodePtr out;
    if (now().IsOp("-") || now().IsOp("+")) {
      out = Make(now().IsOp("-") ? NodeKind::kNegative : NodeKind::kPositive);
      Next();
      out->a = Unary(false);
      Measure(out.get());
    } else {
      out = Primary();
    }
    out = Postfix(std::move(out));
    return with_filter ? FilterExpression(std::move(out)) : std::move(out);
  }

  NodePtr Primary() {
    NodePtr out = Make(NodeKind::kConst);
    const Token& token = now();
    switch (token.kind) {
      case TokenKind::kName:
        if (token.text == "true" || token.text == "True") {
          out->value = true;
        } else if (token.text == "false" || token.text == "False") {
          out->value = false;
        } else if (token.text == "none" || token.text == "None") {
          out->value = None{};
        } else {
          out->kind = NodeKind::kName;
          out->name = token.text;
        }
        Next();
        return out;
      case TokenKind::kString: {
        std::string text;
        for (; now().kind == TokenKind::kString; Next()) text += now().text;
        out->value = Value::Words(std::move(text));
        return out;
      }
      case TokenKind::kInt:
        out->value = token.number;
        Next();
        return out;
      case TokenKind::kFloat:
        out->value = token.real;
        Next();
        return out;
      default:
        break;
    }
    if (SkipOp("(")) {
      out = Tuple(true, {}, /*in_brackets=*/true);
      WantOp(")");
      return out;
    }
    if (SkipOp("[")) {
      out->kind = NodeKind::kList;
      while (ok() && !now().IsOp("]")) {
        if (!out->list.empty()) WantOp(",");
        if (now().IsOp("]")) break;
        out->list.push_back(Expression());
      }
      WantOp("]");
      return Done(std::move(out));
    }
    if (SkipOp("{")) {
      out->kind = NodeKind::kDict;
      while (ok() && !now().IsOp("}")) {
        if (!out->list.empty()) WantOp(",");
        if (now().IsOp("}")) break;
        out->list.push_back(Expression());
        WantOp(":");
        out->list.push_back(Expression());
      }
      WantOp("}");
      return Done(std::move(out));
    }
    Fail("expected an expression" + Found());
    return out;
  }

  // Expressions with commas between them are a tuple.
  NodePtr Tuple(bool with_if = true, std::string_view end_name = {}, bool in_brackets = false) {
    NodePtr out = Make(NodeKind::kTuple);
    bool several = false;
    while (ok()) {
      const bool ends = now().kind == TokenKind::kPrintEnd || now().kind == TokenKind::kBlockEnd || now().IsOp(")") ||
                        (!end_name.empty() && now().IsName(end_name));
      if (ends) break;
      out->list.push_back(Expression(with_if));
      if (!now().IsOp(",")) break;
      several = true;
      Next();
    }
    if (!several) {
      if (!out->list.empty()) return std::move(out->list[0]);
      if (!in_brackets) Fail("expected an expression" + Found());
    }
    return Done(std::move(out));
  }

  NodePtr Postfix(NodePtr out) {
    while (ok()) {
      if (now().IsOp(".") || now().IsOp("[")) {
        out = Subscript(std::move(out));
      } else if (now().IsOp("(")) {
        out = Call(std::move(out));
      } else {
        break;
      }
    }
    return out;
  }

  NodePtr Subscript(NodePtr of) {
    NodePtr out = Make(NodeKind::kItem);
    out->a = std::move(of);
    if (SkipOp(".")) {
      if (now().kind == TokenKind::kInt) {
        out->b = Make(NodeKind::kConst);
        out->b->value = now().number;
        Next();
      } else {
        out->kind = NodeKind::kAttr;
        out->name = WantAnyName();
      }
      return Done(std::move(out));
    }
    WantOp("[");
    std::vector<NodePtr> parts;
    while (ok() && !now().IsOp("]")) {
      if (!parts.empty()) WantOp(",");
      parts.push_back(Subscribed());
    }
    WantOp("]");
    if (parts.size() == 1) {
      out->b = std::move(parts[0]);
    } else {
      out->b = Make(NodeKind::kTuple);
      out->b->list = std::move(parts);
      Measure(out->b.get());
    }
    return Done(std::move(out));
  }

  NodePtr Subscribed() {
    const auto ends = [&] { return now().IsOp(":") || now().IsOp("]") || now().IsOp(","); };
    NodePtr first;
    if (!now().IsOp(":")) {
      first = Expression();
      if (!now().IsOp(":")) return first;
    }
    NodePtr out = Make(NodeKind::kSlice);
    out->list.push_back(std::move(first));
    for (int i = 0; i < 2; ++i) {
      const bool more = SkipOp(":");
      out->list.push_back(more && !ends() ? Expression() : nullptr);
    }
    return Done(std::move(out));
  }

  void Arguments(Node* out) {
    WantOp("(");
    bool first = true;
    while (ok() && !now().IsOp(")")) {
      if (!first) {
        WantOp(",");
        if (now().IsOp(")")) break;
      }
      first = false;
      if (SkipOp("*")) {
        if (out->star != nullptr || out->star_star != nullptr) return Fail("arguments in a wrong order");
        out->star = Expression();
      } else if (SkipOp("**")) {
        if (out->star_star != nullptr) return Fail("arguments in a wrong order");
        out->star_star = Expression();
      } else if (now().kind == TokenKind::kName && ahead().IsOp("=")) {
        if (out->star_star != nullptr) return Fail("arguments in a wrong order");
        std::string name = WantAnyName();
        Next();
        for (const auto& [other, value] : out->named) {
          if (other == name) return Fail("the argument '" + name + "' is given twice");
        }
        out->named.emplace_back(std::move(name), Expression());
        if (out->named.size() > kMaxParameters) return Fail("more keywords than a call may have");
      } else {
        if (!out->named.empty() || out->star != nullptr || out->star_star != nullptr) {
          return Fail("arguments in a wrong order");
        }
        out->list.push_back(Expression());
      }
    }
    WantOp(")");
  }

  NodePtr Call(NodePtr of) {
    NodePtr out = Make(NodeKind::kCall);
    out->a = std::move(of);
    Arguments(out.get());
    return Done(std::move(out));
  }

  NodePtr FilterExpression(NodePtr out) {
    while (ok()) {
      if (now().IsOp("|")) {
        out = Filters(std::move(out));
      } else if (now().IsName("is")) {
        out = Test(std::move(out));
      } else if (now().IsOp("(")) {
        out = Call(std::move(out));
      } else {
        break;
      }
    }
    return out;
  }

  void CheckKnown(const Node& node, const char* what) {
    if (node.function == nullptr && conditions_ == 0) {
      Fail("there is no " + std::string(what) + " '" + node.name.substr(0, 40) + "'");
    }
  }

  // Filters one after the other, around `of`. `begun`: no "|" comes before the first.
  NodePtr Filters(NodePtr of, bool begun = false) {
    while (ok() && (begun || SkipOp("|"))) {
      NodePtr out = Make(NodeKind::kFilter);
      out->a = std::move(of);
      out->name = WantAnyName();
      while (SkipOp(".")) out->name += "." + WantAnyName();
      if (now().IsOp("(")) Arguments(out.get());
      out->function = FindFilter(out->name);
      CheckKnown(*out, "filter");
      of = Done(std::move(out));
      begun = false;
    }
    return of;
  }

  NodePtr Test(NodePtr of) {
    NodePtr out = Make(NodeKind::kTest);
    Next();
    const bool negated = SkipName("not");
    out->a = std::move(of);
    out->name = WantAnyName();
    while (SkipOp(".")) out->name += "." + WantAnyName();
    const Token& token = now();
    const bool has_argument = token.kind == TokenKind::kName || token.kind == TokenKind::kString ||
                              token.kind == TokenKind::kInt || token.kind == TokenKind::kFloat || token.IsOp("[") ||
                              token.IsOp("{");
    if (token.IsOp("(")) {
      Arguments(out.get());
    } else if (has_argument && !token.IsName("else") && !token.IsName("or") && !token.IsName("and")) {
      if (token.IsName("is")) Fail("tests cannot be chained with 'is'");
      out->list.push_back(Postfix(Primary()));
    }
    out->function = FindTest(out->name);
    CheckKnown(*out, "test");
    if (!negated) return Done(std::move(out));
    NodePtr whole = Make(NodeKind::kNot);
    whole->a = Done(std::move(out));
    return Done(std::move(whole));
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int level_ = 0, loops_ = 0, conditions_ = 0;
  Status status_;
};

}  // namespace

Result<NodePtr> ParseTemplate(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return InvalidArgument("the chat template has {} bytes; at most {} are read", source.size(), kMaxSourceBytes);
  }
  WEIR_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace weir::jinja
