"""The faults of tools/faults.py.  find: a text that is in one place of src/, apps/ or include/ (a list: the first of it that is
anywhere, for places whose text is being changed); replace: what is put there; tests: beginnings of CTest's names, one of which
must fail.  Texts are formulas and conditions rather than names, so that code may move."""

from dataclasses import dataclass


@dataclass
class Fault:
    name: str
    breaks: str
    find: object
    replace: str
    tests: str
    asan: bool = False  # only seen by AddressSanitizer


FAULTS = [
    # Checks of calls
    Fault("call-rows", "tensors of different row counts pass", "REQUIRE_OF(s, found == *rows,", "REQUIRE_OF(s, found >= 0,", "api.bad_input"),
    Fault("call-type", "a tensor of another type passes", "REQUIRE_OF(s, tensor->dtype == dtype,", "REQUIRE_OF(s, (int)tensor->dtype >= 0,", "api.bad_input"),
    Fault("call-strides", "columns need not be contiguous", "tensor->dims[lead] <= 1 || tensor->strides[lead] == product", "true", "api.bad_input"),
    Fault("call-alignment", "data off its elements' boundary passes", "(uintptr_t)tensor->data % size == 0", "true", "api.bad_input"),
    Fault("call-overlap", "overlapping tensors pass", "if (a->to <= b->from || b->to <= a->from || may_overlap(c, a, b)) continue;", "continue;", "api.bad_input"),
    Fault("call-overlap-rows", "rows that reach into the other's pass", "shift % step >= low && shift % step + high <= step", "shift % step >= low", "layers.softmax"),
    Fault("call-slots", "a tensor in a slot that is not there passes", "if ((layer->there[part] >> i & 1) || !tensor_of(call, &at)) continue;", "continue;", "api.bad_input"),
    Fault("call-flags", "unknown flags pass", "(call->flags & ~(unsigned)TUTTI_GRAD_ACCUMULATE) == 0", "true", "api.bad_input"),
    Fault("call-saved", "saved need not be aligned", "(uintptr_t)call->saved % 16 == 0", "true", "api.bad_input"),
    Fault("call-unbound", "an unbound parameter of linear passes", "if (!param->value.data && !c->plan) {", "if (!param && !c->plan) {", "api.bad_input"),
    Fault("call-finding", "a fault in data is reported again and again", "TUTTI_TRY(run->zero(ctx->device, ctx->stream, ctx->finding, sizeof finding));", "", "layers.embedding layers.cross_entropy"),
    Fault("call-bad-row", "not the first row with a bad label is named", "row < first && !atomic_compare", "row != first && !atomic_compare", "layers.cross_entropy"),
    Fault("call-company", "a sum without a residual passes", "if (!with || (c->given & with)) continue;", "continue;", "api.bad_input"),
    Fault("call-saved-bytes", "memory for saved may be too small", "!saved || c->call->saved_bytes >= bytes", "true", "api.bad_input api.layers"),
    Fault("call-first-row", "a mask goes without the first row", "call->first_row || !layer->place_matters || plan", "true", "api.bad_input api.layers"),
    Fault("call-in-place", "an input that backward reads is written over", "return !lost && (", "return (", "api.bad_input"),
    Fault("call-param-overlap", "y may lie over the weight", "if (!is_tensor(&written->who) || !is_tensor(&other->who)) return false;", "if (!is_tensor(&written->who) || !is_tensor(&other->who)) return true;", "api.bad_input api.layers"),
    Fault("call-place", "the tensor that is wrong is not said", "tutti__blame(parts[s->part], s->index);", "", "api.bad_input api.layers"),
    Fault("desc-longer", "a newer program's descriptor is cut off in silence", "((const char *)given)[i] == 0", "true", "api.bad_input api.layers"),
    Fault("desc-shorter", "an older program's descriptor is read beyond its end", "memcpy(own, given, size < own_size ? size : own_size);", "memcpy(own, given, own_size);", "api.bad_input api.layers", asan=True),
    Fault("plan-rows", "a plan serves calls of other row counts", "a->op == b->op && a->rows == b->rows &&", "a->op == b->op &&", "layers.layernorm", asan=True),
    Fault("plan-direction", "forward's plan serves backward", "a->alignment == b->alignment && a->backward == b->backward &&", "a->alignment == b->alignment &&", "layers.layernorm layers.embedding", asan=True),
    Fault("plan-settings", "a plan serves layers of other options", "a->settings_hash == b->settings_hash && a->settings_bytes == b->settings_bytes && (a->settings_bytes == 0 || memcmp(a->settings, b->settings, a->settings_bytes) == 0)", "true", "layers.layernorm", asan=True),
    Fault("leaf-order", "leaves are added one after another", "TUTTI_TRY(run_leaves(sums, first, count / 2, level)); TUTTI_TRY(run_leaves(sums, first + count / 2, count / 2, level + 1));", "TUTTI_TRY(run_leaves(sums, first, 1, level)); TUTTI_TRY(run_leaves(sums, first + 1, count - 1, level + 1));", "api.layers"),
    Fault("leaf-accumulate", "leaves overwrite what is there", "if (level == 0 && !sums->views->accumulate)", "if (level == 0)", "api.layers"),
    Fault("leaf-rows", "a leaf's rows begin where the call's do", "v.first_row += begin;", "", "api.layers"),
    # Options
    Fault("option-twice", "an option given twice passes", "!(given & bit)", "true", "api.bad_input"),
    Fault("option-missing", "an option without default may be missing", "(given >> i & 1) || class->type.options[i].default_value", "true", "api.bad_input"),
    Fault("option-prefix", "the beginning of a word is taken for it", "end == length && memcmp(word, value, length) == 0", "end >= length && memcmp(word, value, length) == 0", "api.bad_input"),
    Fault("option-bool", "2 is a truth", "(*(const int *)field & ~1) == 0", "true", "api.bad_input"),
    Fault("option-real", "text behind a number is passed over", "return end != value && !*end;", "return end != value;", "api.bad_input"),
    Fault("option-eps", "eps may be negative", '{"eps", "real", eps_default, offsetof(desc, eps), 0, DBL_MAX}', '{"eps", "real", eps_default, offsetof(desc, eps), -1, DBL_MAX}', "api.bad_input"),
    Fault("option-beta", "beta1 of AdamW may be 1", "desc->beta1 >= 0 && desc->beta1 < 1", "desc->beta1 >= 0 && desc->beta1 <= 1", "api.bad_input"),
    Fault("option-leaves", "the number of leaves need be no power of two", "(own->leaves & (own->leaves - 1)) == 0", "true", "comm.leaves.host.np1"),
    Fault("option-scale", "the loss scale need be no power of two", "frexp(own.loss_scale, &exponent) == 0.5", "frexp(own.loss_scale, &exponent) > 0", "api.bad_input"),
    # LayerNorm and RMSNorm
    Fault("norm-eps", "eps is left out", "sqrt(variance + args->eps)", "sqrt(variance)", "layers.layernorm"),
    Fault("norm-mean", "squares are those of x, not of its distance from the mean", "OF(row_sums)(x, x, *mean, args->cols, &moved, &squares);", "OF(row_sums)(x, x, 0, args->cols, &moved, &squares); moved -= *mean * cols;", "layers.layernorm"),
    Fault("norm-overflow", "a row whose squares overflow is no NaN", "*rstd = squares <= most ? (REAL)(1 / sqrt(variance + args->eps)) : (REAL)NAN;", "*rstd = (REAL)(1 / sqrt(variance + args->eps));", "layers.rmsnorm"),
    Fault("norm-residual", "x + residual is not rounded before its statistics", "OF(tutti__round)(x, args->x.dtype, cols);", "", "layers.rmsnorm"),
    Fault("norm-zero-centred", "1 + gamma is gamma", "if (offset != 0)", "if (offset > 1)", "layers.rmsnorm"),
    Fault("norm-dx", "the sign of a term of dx", "g[j] - mean_g - n[j] * mean_gn", "g[j] - mean_g + n[j] * mean_gn", "layers.layernorm"),
    Fault("norm-dsum", "dsum is left out", "for (int64_t j = 0; j < cols; j++) g[j] += s[j];", "", "layers.rmsnorm"),
    Fault("norm-dbeta", "only a block's last row counts in dbeta", "dbeta[j] += g[j]", "dbeta[j] = g[j]", "layers.layernorm"),
    Fault("norm-saved", "saved has room for rstd alone", "((size_t)rows * (size_t)shape->cols * tutti__size_of(shape->dtype) + 15) / 16 * 16", "((size_t)rows * (size_t)shape->cols * tutti__size_of(shape->dtype) / 2 + 15) / 16 * 16", "layers.layernorm", asan=True),
    Fault("norm-scratch", "a thread's third row lies in the next one's room", "const size_t params = backward ? 1 : 2, rows = backward ? 3 : 2;", "const size_t params = backward ? 1 : 2, rows = 2;", "layers.rmsnorm", asan=True),
    # Sums that all layers share
    Fault("sum-tail", "the last column is left out of sums", "for (int k = 0; j < count; j++, k++)", "for (int k = 0; j + 1 < count; j++, k++)", "layers.softmax"),
    Fault("sum-accumulate", "gradients overwrite", "if (t->accumulate)", "if (!t)", "layers.layernorm layers.linear"),
    Fault("sum-order", "the order of a sum depends on the number of threads", "task.blocks = tutti__split_rows(args->rows, args->cols); task.rows", "task.blocks = tutti__split_rows(args->rows, job->ctx->threads > 1 ? 1 << 20 : args->cols); task.rows", "layers.layernorm"),
    Fault("parallel-rest", "what is left of a division into pieces is not computed", "work(task, begin, begin + each + (p < extra), omp_get_thread_num());", "work(task, begin, begin + each, omp_get_thread_num());", "layers.layernorm"),
    Fault("round-bf16", "bf16 is cut off instead of rounded", "(bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16", "bits >> 16", "api.tensor"),
    Fault("round-f16", "halves are rounded away from zero in f16", "0xfffu + ((magnitude >> 13) & 1u)", "0x1000u", "api.tensor"),
    # Softmax
    Fault("softmax-mask", "a row sees one column too many", "place + 1 < args->cols ? place + 1 : args->cols", "place + 2 < args->cols ? place + 2 : args->cols", "layers.softmax"),
    Fault("softmax-first-row", "first_row is left out of the mask", "(args->first_row + row) % args->causal_period", "row % args->causal_period", "layers.softmax"),
    Fault("softmax-log-masked", "log-softmax of what is masked is 0", "args->log ? -(REAL)INFINITY : 0", "0", "layers.softmax"),
    Fault("softmax-max", "a row is not shifted by its greatest element", "most = row[j] > most ? row[j] : most", "most = row[j] > most && j == 0 ? row[j] : most", "layers.softmax"),
    Fault("softmax-dx-scale", "dx lacks the scale", "dy[j] = scale * y[j] * (dy[j] - sum)", "dy[j] = y[j] * (dy[j] - sum)", "layers.softmax"),
    Fault("softmax-log-dx", "dx of log-softmax takes y for its exponential", "scale * (dy[j] - OF(tutti__exp)(y[j]) * sum)", "scale * (dy[j] - y[j] * sum)", "layers.softmax"),
    Fault("softmax-dx-masked", "dx of what is masked is dy", "for (int64_t j = seen; j < cols; j++) dy[j] = 0;", "", "layers.softmax"),
    # Linear
    Fault("linear-bias", "the bias is left out", "for (int64_t j = 0; j < tile->cols; j++) z[j] += bias[j];", ";", "layers.linear"),
    Fault("linear-relu-nan", "relu makes 0 of a NaN", "row[j] = row[j] < 0 ? 0 : row[j]", "row[j] = row[j] > 0 ? row[j] : 0", "layers.linear"),
    Fault("linear-gelu", "a factor in gelu's derivative", "(REAL)(3 * 0.044715)", "(REAL)(2 * 0.044715)", "layers.linear"),
    Fault("linear-gelu-erf", "a sign in gelu_erf's derivative", "+ z * density", "- z * density", "layers.linear"),
    Fault("linear-silu", "silu's gate is not bounded where exp overflows", "return far ? z * e * OF(far_factor) : z / (1 + e);", "return z / (1 + OF(tutti__exp)(-a));", "layers.linear"),
    Fault("linear-db-run", "the rest of a run of rows is left out of db", "% RUN == RUN - 1 || row == last - 1", "% RUN == RUN - 1", "layers.linear"),
    Fault("linear-dw-accumulate", "dW overwrites", "dw[j] += sum[j]", "dw[j] = sum[j]", "layers.linear"),
    Fault("linear-tile", "a tile's products begin anew at each piece of depth", "cblas_sgemm(CblasRowMajor, ta, tb, (blasint)m, (blasint)n, (blasint)depth, 1, a, (blasint)lda, b, (blasint)ldb, k > 0,", "cblas_sgemm(CblasRowMajor, ta, tb, (blasint)m, (blasint)n, (blasint)depth, 1, a, (blasint)lda, b, (blasint)ldb, 0,", "layers.linear"),
    Fault("linear-saved", "z is not kept for gelu", 'if (!keeps) tutti__layer_slot(layer, "z")->shape.cols = 0;', 'tutti__layer_slot(layer, "z")->shape.cols = 0;', "layers.linear"),
    # CrossEntropy
    Fault("entropy-label", "1 is not subtracted at the label", "(x[label] * inverse - 1) * weight", "x[label] * inverse * weight", "layers.cross_entropy"),
    Fault("entropy-weight", "the loss weight acts at the label alone", "x[j] = x[j] * inverse * weight;", "x[j] = x[j] * inverse;", "layers.cross_entropy"),
    Fault("entropy-scale", "the loss scale is left out", "args->step->loss_weight * args->step->loss_scale", "args->step->loss_weight", "layers.cross_entropy"),
    Fault("entropy-ignored", "an ignored row's loss is one of a label", "if (label == args->ignore_label)", "if (label == args->ignore_label && label < 0)", "layers.cross_entropy"),
    Fault("entropy-sum", "the last row is left out of the sum of losses", "row_sum_f64(task.losses, args->rows)", "row_sum_f64(task.losses, args->rows - (args->rows > 1))", "layers.cross_entropy"),
    # Embedding
    Fault("embedding-token", "the first token beyond the table is in it", "token >= 0 && token < args->vocab", "token >= 0 && token <= args->vocab", "layers.embedding", asan=True),
    Fault("embedding-merge", "blocks of rows are merged in another order", "const bool apart = accumulate && count > 1;", "const bool apart = false;", "layers.embedding"),
    Fault("embedding-first", "a block begins with what was there", "const bool first = place % BLOCK == 0,", "const bool first = place % BLOCK == 1,", "layers.embedding"),
    Fault("embedding-slab", "the columns beyond the first slab are left alone", "task.slabs = (args->cols + SLAB - 1) / SLAB;", "task.slabs = (args->cols + SLAB - 1) / SLAB > 1 ? args->cols / SLAB : 1;", "layers.embedding"),
    # AdamW
    Fault("adamw-bias", "v is corrected by beta1", "1 - pow(args->beta2, state->updates)", "1 - pow(args->beta1, state->updates)", "layers.adamw"),
    Fault("adamw-decay", "weights do not decay", "rate * (step + decay * p[i])", "rate * step", "layers.adamw"),
    Fault("adamw-clip", "small gradients are scaled up to the clip norm", "clip > 1 ? 1 : clip", "clip", "layers.adamw"),
    Fault("adamw-scale", "the norm has the loss scale in it", "state->grad_norm = sqrt(square) / scale;", "state->grad_norm = sqrt(square);", "layers.adamw"),
    Fault("adamw-skip", "an update with NaN gradients is made", "state->skipped = args->skip_nonfinite && !isfinite(state->grad_norm);", "state->skipped = 0;", "layers.adamw"),
    Fault("adamw-rate", "lr_scale is left out", "t->learning_rate * f->lr_scale", "t->learning_rate", "layers.adamw"),
    # Parameters
    Fault("name-checked", "a prefix that no checkpoint can hold is taken", "TUTTI_TRY(check_name(prefix, 1, \"prefix\", \"params_add\"));", "", "api.bad_input"),
    Fault("bind-contiguous", "a value with gaps can be bound", "TUTTI_REQUIRE(is_contiguous(value), \"param_bind", "TUTTI_REQUIRE(value, \"param_bind", "api.bad_input"),
    Fault("bind-shape", "a gradient of another shape can be bound", "TUTTI_REQUIRE(same_shape(grad, &param->value),", "TUTTI_REQUIRE(grad,", "api.bad_input"),
    Fault("store-order", "the store is in the order of forward", "first = first && j >= i;", "first = first && j <= i;", "api.params"),
    Fault("store-refresh", "working values are not rewritten", "if (!params->working) return TUTTI_OK;", "return TUTTI_OK;", "api.params"),
    Fault("store-init", "all parameters begin with the same numbers", "key = tutti__hash(key, name, strlen(name));", "(void)name;", "api.params"),
    # Exchange and leaves
    Fault("tree-slice", "a rank's first row of another's roots is its own", "root < sync->leaves.first_root ? root : root - sync->leaves.own_roots", "root < sync->leaves.first_root ? root : root - sync->leaves.own_roots + (root > sync->leaves.first_root + sync->leaves.own_roots ? -1 : 0)", "comm.leaves.host.np3"),
    Fault("tree-order", "roots of ranks are added one after the other", "args.pops[k] = leaves->pops[k];", "args.pops[k] = k > 0;", "comm.leaves.host.np3"),
    Fault("tree-leaf", "a leaf's neighbours are not merged", "top = (node){top.level + 1, top.number / 2};", "top = (node){top.level + 1, top.number};", "comm.leaves"),
    Fault("sync-tied", "a tied gradient sets out at its first use", "if (--sync->missing[entries[i]->gradient] > 0) continue;", "if (--sync->missing[entries[i]->gradient] != sync->gradients[entries[i]->gradient].users - 1) continue;", "comm.grad_sync.host.np2"),
    Fault("sync-ready", "a parameter that never was ready is no error", "if (sync->missing[g] == 0 || sync->gradients[g].first_range > range) continue;", "continue;", "api.bad_input comm.grad_sync.host.np1"),
    Fault("sync-signature", "types and users of parameters are not compared over the ranks", "{(int32_t)gradient->dtype, (int32_t)param->value.dtype, gradient->users, param->grad.ndim}", "{0, 0, 0, param->grad.ndim}", "comm.grad_sync.host.np2"),
    Fault("sync-reopen", "the second step sends before gradients are complete", "sync->ranges[r].missing = sync->ranges[r].at.gradients;", "sync->ranges[r].missing = 1;", "comm.grad_sync.host.np2"),
    Fault("sync-overlap", "gradients that overlap are taken", "a->data + (size_t)a->count * tutti_dtype_size(a->dtype) > b->data", "a->data > b->data", "api.bad_input comm.setup.host.np1"),
    Fault("replicas", "a difference on the last rank is not seen", "if (all[r * n + i] != all[i]) *differ = (int)i;", "if (all[r * n + i] != all[i] && r + 1 < (size_t)comm->world_size) *differ = (int)i;", "comm.verbs.host.np3 comm.setup.host.np3"),
    # Status
    Fault("status-clean", "control characters of others reach the message", 'snprintf(last_error, sizeof last_error, "%s", tutti_text_clean(text));', 'snprintf(last_error, sizeof last_error, "%s", text);', "api.bad_input train.clean"),
    # Checkpoints and cases
    Fault("file-checksum", "a damaged tensor is loaded", "DATA_REQUIRE(checksum == given,", "DATA_REQUIRE(true,", "io.damage.host.np1"),
    Fault("file-shape", "a tensor of another shape is loaded", "same = wants.dims[i] == node->dims[i] || wants.dims[i] == -1;", "same = true;", "io.damage.host.np1 io.round_trip.host.np1"),
    Fault("file-complete", "an incomplete file is loaded", "complete->kind == TUTTI__ATTRIBUTE_INT && complete->ints[0] == 1", "complete->kind == TUTTI__ATTRIBUTE_INT", "io.damage.host.np1"),
    Fault("file-extras", "what is not expected in a file is passed over", "if (!known[i] && node->kind != TUTTI__NODE_GROUP &&", "if (!node && !known[i] && node->kind != TUTTI__NODE_GROUP &&", "io.damage.host.np1"),
    Fault("file-refresh", "working values are those of before the load", "TUTTI_TRY(tutti_params_refresh(checkpoint->stores[i], checkpoint->ctx));", ";", "io.round_trip.host.np1"),
    Fault("file-own-value", "own values are those of before the load", "TUTTI_TRY(convert(checkpoint, &checkpoint->bound[i].value, &checkpoint->bound[i].master));", ";", "io.own_params.host.np1"),
    Fault("file-own-master", "own values without masters are not written", "if (bound->made) TUTTI_TRY(convert(checkpoint, &bound->master, &bound->value));", "(void)bound;", "io.own_params.host.np1"),
    Fault("file-share", "the last writer's blocks have another's hashes", "all + (size_t)s->ranks[w] * most,", "all + (size_t)s->ranks[0] * most,", "io.round_trip.host.np3 io.round_trip.host.np2"),
    Fault("file-private", "a private file's successor is open to all", "place->replaces ? 0600 : 0666", "0666", "io.owner.host.np1"),
    # Validator
    Fault("validate-bound", "bounds are ten times too wide", "p->tensor->atol + p->tensor->rtol * size", "10 * (p->tensor->atol + p->tensor->rtol * size)", "validate.wrong validate.faults"),
    Fault("validate-nan", "a NaN is like any value", "if (!isfinite(actual) || !isfinite(expected)) return INFINITY;", "if (!isfinite(actual) || !isfinite(expected)) return 0;", "validate.wrong validate.faults"),
    Fault("validate-code", "what does not hold is no failure", 'return app_fail(APP_MISMATCH, "%d tensors of %d cases do not hold"', 'return app_fail(APP_OK, "%d tensors of %d cases do not hold"', "validate.wrong"),
    Fault("validate-sum", "the second piece's sum of losses is left out", "p < r->pieces; p++", "p < 1; p++", "validate.holds"),
    Fault("validate-rows", "rows that do not divide evenly are nobody's", "return rows / parts * before + rows % parts * before / parts;", "return rows / parts * before;", "validate.holds"),
    Fault("validate-first-row", "a rank's rows begin at the case's first", "s->which->first_row + r->plan->first + p->first", "s->which->first_row + p->first", "validate.holds"),
    Fault("validate-alone", "sharded and whole are not compared", "if (same) return;", "return;", "validate.faults validate.wrong"),
    # Bench
    Fault("bench-reference", "the reference of norm backward lacks a term", "(n->dy[i] * n->gamma[i] - g_sum - normed * gn_sum)", "(n->dy[i] * n->gamma[i] - g_sum)", "launch.bench"),
    Fault("bench-error", "a wrong result is right", "bool right = r->error <= r->tolerance;", "bool right = r->error <= 1e300;", "launch.bench"),
    Fault("bench-fail-over", "nothing is slower than before", "now <= before * (1 + o->fail_over / 100)", "now > 0", "launch.bench"),
]
