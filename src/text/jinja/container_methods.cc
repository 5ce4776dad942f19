// SPDX-License-Identifier: Apache-2.0
// Methods of dict and list. Those that would change one end the template: the sandbox that chat templates are written
// for forbids them as well.
#include "text/jinja/arguments.h"

namespace weir::jinja {
namespace {

Value RefuseChange(Machine& m, const Value& self, const Args&) {
  return m.Fail(std::string("a template may not change a ") + TypeName(self) + "; it can make a new one with +");
}

Value GetKey(Machine& m, const Value& self, const Args& args) {
  const Value* found = m.Look(*self.dict(), args.pos[0]);
  if (found != nullptr) return *found;
  return args.pos.size() > 1 ? args.pos[1] : Value(None{});
}

Value ItemsOf(Machine& m, const Value& self, const Args&) {
  std::vector<Value> out;
  for (const auto& [key, value] : self.dict()->items) out.push_back(m.NewSeq({key, value}, SeqKind::kTuple));
  return m.NewSeq(std::move(out), SeqKind::kItems);
}

Value KeysOf(Machine& m, const Value& self, const Args&) {
  std::vector<Value> out;
  for (const auto& [key, value] : self.dict()->items) out.push_back(key);
  return m.NewSeq(std::move(out), SeqKind::kKeys);
}

Value ValuesOf(Machine& m, const Value& self, const Args&) {
  std::vector<Value> out;
  for (const auto& [key, value] : self.dict()->items) out.push_back(value);
  return m.NewSeq(std::move(out), SeqKind::kValues);
}

Value CopyOf(Machine&, const Value& self, const Args&) { return self; }

Value IndexIn(Machine& m, const Value& self, const Args& args) {
  const std::vector<Value>& items = self.seq()->items;
  for (size_t i = 0; m.ok() && i < items.size(); ++i) {
    if (m.Same(items[i], args.pos[0])) return static_cast<int64_t>(i);
  }
  return m.Fail("the list does not contain what is looked for");
}

Value CountIn(Machine& m, const Value& self, const Args& args) {
  int64_t n = 0;
  for (const Value& item : self.seq()->items) n += m.Same(item, args.pos[0]);
  return n;
}

constexpr Named kDictMethods[] = {
    {"get", GetKey, 1, 2},
    {"items", ItemsOf},
    {"keys", KeysOf},
    {"values", ValuesOf},
    {"copy", CopyOf},
    {"pop", RefuseChange, 0, kAnyNumber},
    {"popitem", RefuseChange, 0, kAnyNumber},
    {"setdefault", RefuseChange, 0, kAnyNumber},
    {"update", RefuseChange, 0, kAnyNumber},
    {"clear", RefuseChange, 0, kAnyNumber},
};
constexpr Named kListMethods[] = {
    {"index", IndexIn, 1, 1},
    {"count", CountIn, 1, 1},
    {"copy", CopyOf},
    {"append", RefuseChange, 0, kAnyNumber},
    {"extend", RefuseChange, 0, kAnyNumber},
    {"insert", RefuseChange, 0, kAnyNumber},
    {"pop", RefuseChange, 0, kAnyNumber},
    {"remove", RefuseChange, 0, kAnyNumber},
    {"clear", RefuseChange, 0, kAnyNumber},
    {"sort", RefuseChange, 0, kAnyNumber},
    {"reverse", RefuseChange, 0, kAnyNumber},
};

}  // namespace

const Named* FindDictMethod(std::string_view name) { return FindIn(kDictMethods, name); }
const Named* FindListMethod(std::string_view name) { return FindIn(kListMethods, name); }

}  // namespace weir::jinja
