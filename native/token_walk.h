// The vocabulary's trie packed for walking, and the token masks of lexeme states: what every machine of one vocabulary
// shares. Nothing here starts a thread or is safe for two at once.
//
//     LexemeRows (memory of Python's lexeme table)     Lexemes: state -> LexemeMask, least recently used dropped
//     rows[s][256]  -2 in the first cell: not filled       mask   tokens that stay inside the lexeme or end with it
//     accept[s]     0, 1 (may go on), 2 (is over)          exits  nodes where it may end and a token goes on
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

namespace plait {

constexpr int32_t DEAD = -1, NEED = -2, LIMIT = -3, AGAIN = -4;

// What a call that answered NEED waits for, or which limit stopped one that answered LIMIT. Python's memory.
struct Needs {
    enum : int32_t { PRODUCTIONS = 0, ROW = 1, KEY = 2 };
    static constexpr int32_t SPACE = 255;
    int32_t count;  // of needs, or the number of a limit
    int32_t unused;
    struct {
        int32_t kind, value;
    } of[SPACE];

    bool full() const { return count >= SPACE; }
    int32_t add(int32_t kind, int32_t value) {
        for (int32_t at = 0; at < count; at++)
            if (of[at].kind == kind && of[at].value == value) return NEED;
        if (!full()) of[count++] = {kind, value};
        return NEED;
    }
};

struct LexemeRows {
    const int32_t *rows;
    const uint8_t *accept;
    const int32_t *keys;  // the state whose mask is the same; -1 not asked yet
    int64_t states;

    const int32_t *row(int32_t state) const { return rows + static_cast<int64_t>(state) * 256; }
    bool filled(int32_t state) const { return *row(state) != -2; }
};

struct Trie {
    struct Node {
        int32_t skip, token;
        uint32_t depth_byte;  // depth << 8 | byte
    };
    std::vector<Node> nodes;
    std::vector<int32_t> child_first, child;  // children of node n: child[child_first[n] .. child_first[n + 1]], by byte
    const int32_t *first, *token_ids;         // Python's memory
    int32_t words, deepest = 0;

    Trie(const uint8_t *byte, const int32_t *depth, const int32_t *skip, const int32_t *token, const int32_t *first,
         const int32_t *token_ids, int32_t count, int32_t words)
        : nodes(count), child_first(count + 1), first(first), token_ids(token_ids), words(words) {
        child.reserve(count);
        for (int32_t node = 0; node < count; node++) {
            nodes[node] = {skip[node], token[node], static_cast<uint32_t>(depth[node]) << 8 | byte[node]};
            deepest = std::max(deepest, depth[node]);
            child_first[node] = static_cast<int32_t>(child.size());
            for (int32_t at = node + 1; at < skip[node]; at = skip[at]) child.push_back(at);
        }
        child_first[count] = static_cast<int32_t>(child.size());
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

struct LexemeMask {
    std::vector<uint32_t> mask;
    std::vector<int32_t> exits;   // inner nodes where it may end or go on
    std::vector<int32_t> closes;  // nodes where it is over, inner or not
    // the children of all exits and closes, by byte: node[first[i] .. first[i + 1]] under value[i]; made when first wanted
    std::vector<uint8_t> value;
    std::vector<int32_t> first, node;

    int64_t nbytes() const { return 128 + 4 * (mask.size() + exits.size() + closes.size() + first.size() + node.size()); }

    void index(const Trie &trie) {
        if (!first.empty()) return;
        int32_t count[257] = {0};
        for (const std::vector<int32_t> *ends : {&exits, &closes})
            for (int32_t end : *ends)
                for (int32_t at = trie.child_first[end]; at < trie.child_first[end + 1]; at++) count[trie.byte(trie.child[at]) + 1]++;
        for (int32_t byte = 0; byte < 256; byte++) {
            if (count[byte + 1]) {
                value.push_back(byte);
                first.push_back(count[byte]);
            }
            count[byte + 1] += count[byte];
        }
        first.push_back(count[256]);
        node.resize(count[256]);
        for (const std::vector<int32_t> *ends : {&exits, &closes})
            for (int32_t end : *ends)
                for (int32_t at = trie.child_first[end]; at < trie.child_first[end + 1]; at++) node[count[trie.byte(trie.child[at])]++] = trie.child[at];
    }
};

class Lexemes {
  public:
    Trie trie;
    const LexemeRows *table;
    Needs *needs;
    int64_t nbytes = 0, max_bytes;

    uint8_t missing[256];  // 1: no token spells that byte alone

    Lexemes(Trie trie, const uint8_t *missing_bytes, const LexemeRows *table, Needs *needs, int64_t max_bytes)
        : trie(std::move(trie)), table(table), needs(needs), max_bytes(max_bytes), stack(this->trie.deepest + 1) {
        std::memcpy(missing, missing_bytes, sizeof missing);
    }

    // The mask of `state` (one that is its own key), or null with needs. Work done so far is kept for the next call.
    std::shared_ptr<LexemeMask> get(int32_t state) {
        auto found = kept.find(state);
        if (found != kept.end()) {
            order.splice(order.begin(), order, found->second.place);
            return found->second.mask;
        }
        if (walks.size() > 64 && !walks.count(state)) walks.clear();
        Walk &walk = walks[state];
        if (!walk.made) {
            walk.made = std::make_shared<LexemeMask>();
            walk.made->mask.assign(trie.words, 0);
            walk.todo.push_back({0, state});
        }
        if (!run(walk)) return nullptr;
        std::shared_ptr<LexemeMask> made = std::move(walk.made);
        walks.erase(state);
        made->exits.shrink_to_fit();
        made->closes.shrink_to_fit();
        order.push_front(state);
        kept[state] = {made, order.begin()};
        nbytes += made->nbytes();
        while (nbytes > max_bytes && kept.size() > 1) {
            auto last = kept.find(order.back());
            nbytes -= last->second.mask->nbytes();
            kept.erase(last);
            order.pop_back();
        }
        return made;
    }

    void index(LexemeMask &mask) {
        int64_t before = mask.nbytes();
        mask.index(trie);
        nbytes += mask.nbytes() - before;
    }

  private:
    struct Below {
        int32_t node, state;
    };
    struct Walk {
        std::vector<Below> todo, blocked;
        std::shared_ptr<LexemeMask> made;
    };
    struct Kept {
        std::shared_ptr<LexemeMask> mask;
        std::list<int32_t>::iterator place;
    };
    std::unordered_map<int32_t, Kept> kept;
    std::unordered_map<int32_t, Walk> walks;
    std::list<int32_t> order;
    std::vector<int32_t> stack;

    bool run(Walk &walk) {
        while (!walk.todo.empty()) {
            Below at = walk.todo.back();
            walk.todo.pop_back();
            if (!table->filled(at.state)) {
                needs->add(Needs::ROW, at.state);
                walk.blocked.push_back(at);
            } else {
                below(walk, at);
            }
        }
        walk.todo.swap(walk.blocked);
        return walk.todo.empty();
    }

    // Every token strictly below a node, from a state whose row is filled; subtrees that want an absent row are put off.
    void below(Walk &walk, Below from) {
        const Trie::Node *nodes = trie.nodes.data();
        const int32_t *rows = table->rows;
        const uint8_t *accept = table->accept;
        uint32_t *mask = walk.made->mask.data();
        int32_t *states = stack.data();
        int32_t end = nodes[from.node].skip;
        states[nodes[from.node].depth_byte >> 8] = from.state;
        for (int32_t node = from.node + 1; node < end;) {
            Trie::Node here = nodes[node];
            int32_t depth = here.depth_byte >> 8;
            int32_t next = rows[static_cast<int64_t>(states[depth - 1]) * 256 + (here.depth_byte & 255)];
            if (next < 0) {
                node = here.skip;
                continue;
            }
            trie.set(node, mask);
            uint8_t ends = accept[next];
            if (__builtin_expect(ends == 2, 0)) {
                walk.made->closes.push_back(node);
                node = here.skip;
                continue;
            }
            if (here.skip == node + 1) {
                node++;
                continue;
            }
            if (ends) walk.made->exits.push_back(node);
            if (__builtin_expect(rows[static_cast<int64_t>(next) * 256] == -2, 0)) {
                needs->add(Needs::ROW, next);
                walk.blocked.push_back({node, next});
                node = here.skip;
            } else {
                states[depth] = next;
                node++;
            }
        }
    }
};

}  // namespace plait
