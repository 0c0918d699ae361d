// The token mask of one lexeme state: a depth-first walk of the vocabulary's trie beside the lexeme table.
// Arrays as constrained/trie.py and constrained/pushdown/lexemes.py describe them. Runs on the calling thread alone.
#include <cstdint>

extern "C" {

// stack: int32[deepest node + 1], scratch; the caller puts the state into stack[0]. mask: uint32[words], zero at first;
// gains the bits of every token that stays inside the lexeme or ends where it may end. exits: int32[nodes], gains from
// its start the nodes where the lexeme may end and tokens go on below (found[0] of them), and from its end backwards the
// nodes where it must end (found[1] of them). Both counts are zero at first.
// Starts at node `node` (1 at first). Returns `nodes` when done, or the node before which the row of the state
// stack[depth[node] - 1] is not filled: fill it and call again with that node and everything else as it is (rows and
// accept may have moved).
int32_t plait_lexeme_mask(const uint8_t *byte, const int32_t *depth, const int32_t *skip, const int32_t *token,
                          const int32_t *first, const int32_t *token_ids, int32_t nodes, const int32_t *rows,
                          const uint8_t *accept, int32_t node, int32_t *stack, uint32_t *mask, int32_t *exits, int32_t *found) {
    int32_t may = found[0], must = found[1];
    while (node < nodes) {
        int32_t level = depth[node];
        const int32_t *row = rows + static_cast<int64_t>(stack[level - 1]) * 256;
        int32_t next = row[byte[node]];
        if (next < 0) {
            if (row[0] == -2) break;
            node = skip[node];
            continue;
        }
        if (row[0] == -2) break;
        stack[level] = next;
        int32_t id = token[node];
        if (__builtin_expect(id < -1, 0)) {
            for (int32_t at = first[node]; at < first[node + 1]; at++) mask[token_ids[at] >> 5] |= 1u << (token_ids[at] & 31);
        } else {
            int32_t some = id >= 0;
            mask[(id >> 5) & -some] |= static_cast<uint32_t>(some) << (id & 31);
        }
        uint8_t ends = accept[next];
        int32_t after = skip[node];
        if (__builtin_expect(ends != 0, 0)) {
            if (ends == 2) {
                exits[nodes - ++must] = node;
                node = after;
                continue;
            }
            if (after > node + 1) exits[may++] = node;
        }
        node++;
    }
    found[0] = may;
    found[1] = must;
    return node;
}
}
