// SPDX-License-Identifier: Apache-2.0
// The parts of a session, other than pot and runner, that own memory.
#pragma once

#include "engine/buffer_space.h"
#include "engine/evidence/evidence.h"
#include "engine/session/aside.h"
#include "engine/session/chunk_reader.h"
#include "engine/session/late_rows.h"
#include "engine/session/partial_reads.h"
#include "engine/session/prediction.h"
#include "engine/session/read_ahead.h"
#include "engine/session/session_trace.h"
#include "engine/session/slot_selector.h"
#include "engine/session_plan.h"

namespace weir {

struct SessionParts {
  EvidenceSet evidence;
  Prediction prediction;
  ReadAhead ahead;
  LateRows late;
  Aside aside;
  SessionTrace trace;
  SlotMerger merger;

  // Lays out everything that the plan counts as metadata, workspace and logits of these parts; `plan` has pot and
  // runner. Laid out separately: what is read ahead or asked aside, rows that wait, and a trace that watches
  // attention.
  void LayOut(const Model& model, const Backend& backend, const PolicyNeeds& needs, const SessionPlan& plan,
              BufferSpace* space) {
    prediction.LayOut(model, backend, plan.runner.max_rows, space);
    evidence.LayOut(plan.pot, space);
    ChunkReader::LayOut(plan.runner.max_rows, space);
    SlotSelector::LayOut(plan.pot, needs, space);
    PartialReads::LayOut(plan.pot, needs, space);
    merger.LayOut(plan.pot, needs.merge, space);
  }
};

}  // namespace weir
