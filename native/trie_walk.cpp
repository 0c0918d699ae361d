// The token mask of one automaton state: a depth-first walk of the vocabulary's trie beside the automaton.
// Arrays as constrained/trie.py and constrained/dfa.py describe them. Runs on the calling thread alone.
#include <cstdint>

extern "C" {

// stack: int32[deepest node + 1], scratch. mask: uint32[words], already zero; gains the bits of every token whose bytes
// lead from `state` to a live state. Returns the number of nodes visited.
//
// Half of the nodes end a token, so a branch on that would be mispredicted all the time: `token` holds the one id of
// a node, -1 for none, and only the rare -2 (several ids spell the same bytes) looks into first and token_ids.
int32_t plait_trie_mask(const uint8_t *byte, const int32_t *depth, const int32_t *skip, const int32_t *token,
                        const int32_t *first, const int32_t *token_ids, int32_t nodes, const uint8_t *byte_class, const int32_t *table,
                        int32_t classes, int32_t state, int32_t *stack, uint32_t *mask) {
    int32_t visited = 0;
    stack[0] = state;
    for (int32_t node = 1; node < nodes; visited++) {
        int32_t level = depth[node];
        int32_t next = table[static_cast<int64_t>(stack[level - 1]) * classes + byte_class[byte[node]]];
        if (next < 0) {
            node = skip[node];
            continue;
        }
        stack[level] = next;
        int32_t id = token[node];
        if (__builtin_expect(id < -1, 0)) {
            for (int32_t at = first[node]; at < first[node + 1]; at++) mask[token_ids[at] >> 5] |= 1u << (token_ids[at] & 31);
        } else {
            int32_t some = id >= 0;
            mask[(id >> 5) & -some] |= static_cast<uint32_t>(some) << (id & 31);
        }
        node++;
    }
    return visited;
}
}
