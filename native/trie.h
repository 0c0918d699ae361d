// The vocabulary's trie (constrained/trie.py) packed for walking: nodes in depth-first order, so that a subtree is a run of
// nodes and its tokens are a run of token_ids. Read only, shared by every machine of one vocabulary.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace plait {

struct Trie {
    struct Node {
        int32_t skip, token;
        uint32_t depth_byte;  // depth << 8 | byte
    };
    std::vector<Node> nodes;
    std::vector<int32_t> child_first, child;  // children of node n: child[child_first[n] .. child_first[n + 1]], by byte
    std::vector<uint8_t> quiet;               // 1: no quote and no backslash in the node and below it
    const int32_t *first, *token_ids;         // Python's memory
    int32_t words, deepest = 0;

    Trie(const uint8_t *byte, const int32_t *depth, const int32_t *skip, const int32_t *token, const int32_t *first,
         const int32_t *token_ids, int32_t count, int32_t words)
        : nodes(count), child_first(count + 1), quiet(count), first(first), token_ids(token_ids), words(words) {
        child.reserve(count);
        for (int32_t node = 0; node < count; node++) {
            nodes[node] = {skip[node], token[node], static_cast<uint32_t>(depth[node]) << 8 | byte[node]};
            deepest = std::max(deepest, depth[node]);
            child_first[node] = static_cast<int32_t>(child.size());
            for (int32_t at = node + 1; at < skip[node]; at = skip[at]) child.push_back(at);
        }
        child_first[count] = static_cast<int32_t>(child.size());
        for (int32_t node = count - 1; node >= 0; node--) {
            quiet[node] = byte[node] != '"' && byte[node] != '\\';
            for (int32_t at = child_first[node]; at < child_first[node + 1]; at++) quiet[node] &= quiet[child[at]];
        }
    }
    uint8_t byte(int32_t node) const { return nodes[node].depth_byte & 255; }
    int32_t depth(int32_t node) const { return nodes[node].depth_byte >> 8; }
    bool inner(int32_t node) const { return nodes[node].skip > node + 1; }

    // The child of `node` under `value`, or -1.
    int32_t find(int32_t node, uint8_t value) const {
        int32_t low = child_first[node], high = child_first[node + 1];
        while (high - low > 8) {
            int32_t middle = (low + high) / 2;
            if (byte(child[middle]) <= value) low = middle;
            else high = middle;
        }
        for (; low < high; low++)
            if (byte(child[low]) == value) return child[low];
        return -1;
    }
    // Half of the nodes end a token: a branch on that would be mispredicted, so a node without one sets no bit of word 0.
    void set(int32_t node, uint32_t *mask) const {
        int32_t id = nodes[node].token;
        if (__builtin_expect(id < -1, 0)) {
            for (int32_t at = first[node]; at < first[node + 1]; at++) mask[token_ids[at] >> 5] |= 1u << (token_ids[at] & 31);
        } else {
            int32_t some = id >= 0;
            mask[(id >> 5) & -some] |= static_cast<uint32_t>(some) << (id & 31);
        }
    }
};

}  // namespace plait
