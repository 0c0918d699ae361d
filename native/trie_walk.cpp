// The token mask of one automaton state: a depth-first walk of the vocabulary's trie beside the automaton.
// Arrays as constrained/trie.py and constrained/dfa.py describe them. Runs on the calling thread alone.
#include <cstdint>

extern "C" {

// stack: int32[deepest node + 1], scratch. mask: uint32[words], already zero; gains the bits of every token whose bytes
// lead from `state` to a live state. Returns the number of nodes visited.
int32_t plait_trie_mask(const uint8_t *byte, const int32_t *depth, const int32_t *skip, const int32_t *first,
                        const int32_t *token_ids, int32_t nodes, const uint8_t *byte_class, const int32_t *table,
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
        for (int32_t at = first[node]; at < first[node + 1]; at++) {
            uint32_t token = static_cast<uint32_t>(token_ids[at]);
            mask[token >> 5] |= 1u << (token & 31);
        }
        node++;
    }
    return visited;
}
}
