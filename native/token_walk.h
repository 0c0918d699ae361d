// The token masks of lexeme states: what every machine of one vocabulary shares, beside its trie. Nothing here starts a
// thread or is safe for two at once.
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
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trie.h"

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
    void add(int32_t kind, int32_t value) {
        for (int32_t at = 0; at < count; at++)
            if (of[at].kind == kind && of[at].value == value) return;
        if (!full()) of[count++] = {kind, value};
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

// A free JSON string counted: how many characters each token begins, for strings of bounded length. Those differ from
// the free one only in where they must and where they may not end, so their masks need no rows of their own.
struct Counted {
    std::vector<std::vector<int32_t>> nodes;  // by number of characters begun: nodes where the string goes on
    std::vector<std::pair<int32_t, int32_t>> closes;  // node, characters before the quote
    std::vector<std::vector<uint32_t>> upto;  // masks of the nodes with at most so many characters; empty: not made yet

    const std::vector<uint32_t> &mask(size_t most, const Trie &trie) {
        most = std::min(most, nodes.size() - 1);
        if (upto[most].empty()) {
            size_t from = most;
            while (from > 0 && upto[from - 1].empty()) from--;
            upto[most] = from ? upto[from - 1] : std::vector<uint32_t>(trie.words, 0);
            for (; from <= most; from++)
                for (int32_t node : nodes[from]) trie.set(node, upto[most].data());
        }
        return upto[most];
    }
};

class Lexemes {
  public:
    Trie trie;
    const LexemeRows *table;
    Needs *needs;
    int64_t nbytes = 0, max_bytes;
    uint8_t missing[256];  // 1: no token spells that byte alone
    bool broken = false;   // memory ran out in the middle of something

    Lexemes(Trie trie, const uint8_t *missing_bytes, const LexemeRows *table, Needs *needs, int64_t max_bytes)
        : trie(std::move(trie)), table(table), needs(needs), max_bytes(max_bytes), stack(this->trie.deepest + 1) {
        std::memcpy(missing, missing_bytes, sizeof missing);
    }

    // `state` is a JSON string of low to high (-1: any number of) characters, whatever they are; `free` one without bounds.
    void window(int32_t state, int32_t low, int32_t high, int32_t free) {
        if (state != free) windows[state] = {low, high, free};
    }

    // `state` is a JSON string that every character may go on, always, if not end: outside of escapes it differs from
    // `free` in where it may end alone.
    void total(int32_t state, int32_t free) {
        if (state != free) totals[state] = free;
    }

    // The mask of `state` (one that is its own key), or null with needs. Work done so far is kept for the next call.
    std::shared_ptr<LexemeMask> get(int32_t state) {
        auto found = kept.find(state);
        if (found != kept.end()) {
            order.splice(order.begin(), order, found->second.place);
            return found->second.mask;
        }
        auto bounds = windows.find(state);
        std::shared_ptr<LexemeMask> made = bounds != windows.end() ? bounded(bounds->second) : walked(state);
        if (!made) return nullptr;
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
    struct Window {
        int32_t low, high, free;
    };
    // A subtree to walk from `state`. `other` is where the base's walk of it is, -1 where the base has nothing there.
    struct Below {
        int32_t node, state, other;
        bool total;  // outside of escapes, in a walk that `total` speaks of
    };
    struct Walk {
        std::vector<Below> todo, blocked;
        std::shared_ptr<LexemeMask> made, base;
        std::vector<std::pair<int32_t, int32_t>> replaced;  // nodes [first, second) whose ends are not the base's

        void replace(int32_t from, int32_t to) {
            if (!replaced.empty() && replaced.back().second == from) replaced.back().second = to;
            else replaced.push_back({from, to});
        }
    };
    struct Kept {
        std::shared_ptr<LexemeMask> mask;
        std::list<int32_t>::iterator place;
    };
    struct Pair {
        int32_t state, other;
    };
    static constexpr size_t MOST_BASE_ENDS = 4096;
    std::unordered_map<int32_t, Kept> kept;
    std::unordered_map<int32_t, Walk> walks;
    std::unordered_map<int32_t, Window> windows;
    std::unordered_map<int32_t, int32_t> totals;
    std::unordered_map<int32_t, Counted> counted;
    std::list<int32_t> order;
    std::vector<Pair> stack;

    std::shared_ptr<LexemeMask> walked(int32_t state) {
        if (!wanted(state)) return nullptr;
        if (!walks.count(state)) {
            auto free = totals.find(state);
            bool total = free != totals.end();
            if (total && !get(free->second)) return nullptr;
            if (walks.size() > 64) walks.clear();
            int32_t other = total ? free->second : base_of(state);
            Walk &begun = walks[state];
            begun.made = std::make_shared<LexemeMask>();
            if (other >= 0) {
                begun.base = kept[other].mask;
                begun.made->mask = begun.base->mask;
            } else {
                begun.made->mask.assign(trie.words, 0);
            }
            begun.todo.push_back({0, state, other, total});
        }
        Walk &walk = walks[state];
        if (!run(walk)) return nullptr;
        if (walk.base) inherit(walk);
        std::shared_ptr<LexemeMask> made = std::move(walk.made);
        walks.erase(state);
        made->exits.shrink_to_fit();
        made->closes.shrink_to_fit();
        return made;
    }

    // A state with a known mask to which most characters lead, and so most of the trie, or -1: what follows them is the
    // same ("a string that is none of these names" after a letter that begins none).
    int32_t base_of(int32_t state) const {
        const int32_t *row = table->row(state);
        int32_t candidate = -1, votes = 0;
        for (int32_t byte = 0x20; byte < 0x7F; byte++) {
            if (votes == 0) candidate = row[byte];
            votes += row[byte] == candidate ? 1 : -1;
        }
        if (candidate < 0) return -1;
        int32_t key = table->keys[candidate];
        if (key >= 0) candidate = key;
        auto found = kept.find(candidate);
        if (candidate == state || found == kept.end() || !table->filled(candidate)) return -1;
        const int32_t *other = table->row(candidate);
        int32_t equal = 0;
        for (int32_t byte = 0x20; byte < 0x7F; byte++) equal += row[byte] == other[byte];
        if (equal < 64) return -1;  // a counter: all is different all the way down, and that is cheaper walked alone
        return found->second.mask->exits.size() + found->second.mask->closes.size() <= MOST_BASE_ENDS ? candidate : -1;
    }

    // The base's ends where the walk did not come by.
    void inherit(Walk &walk) {
        std::sort(walk.replaced.begin(), walk.replaced.end());
        auto kept_end = [&](int32_t node) {
            auto after = std::upper_bound(walk.replaced.begin(), walk.replaced.end(), std::pair<int32_t, int32_t>{node, INT32_MAX});
            return after == walk.replaced.begin() || std::prev(after)->second <= node;
        };
        for (int32_t node : walk.base->exits)
            if (kept_end(node)) walk.made->exits.push_back(node);
        for (int32_t node : walk.base->closes)
            if (kept_end(node)) walk.made->closes.push_back(node);
    }

    // Whether the row of `state` is there; if not, it is asked for.
    bool wanted(int32_t state) {
        if (table->filled(state)) return true;
        needs->add(Needs::ROW, state);
        return false;
    }

    bool run(Walk &walk) {
        while (!walk.todo.empty()) {
            Below at = walk.todo.back();
            walk.todo.pop_back();
            bool ready = wanted(at.state);
            if (at.other >= 0) ready &= wanted(at.other);
            if (!ready) walk.blocked.push_back(at);
            else if (at.other >= 0) beside(walk, at);
            else below(walk, at);
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
        Pair *states = stack.data();
        int32_t end = nodes[from.node].skip;
        states[nodes[from.node].depth_byte >> 8].state = from.state;
        for (int32_t node = from.node + 1; node < end;) {
            Trie::Node here = nodes[node];
            int32_t depth = here.depth_byte >> 8;
            int32_t next = rows[static_cast<int64_t>(states[depth - 1].state) * 256 + (here.depth_byte & 255)];
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
                walk.blocked.push_back({node, next, -1, false});
                node = here.skip;
            } else {
                states[depth].state = next;
                node++;
            }
        }
    }

    // The same where the mask holds what the base allows: only what differs is visited. A state the base has too on the
    // same path allows the same below.
    void beside(Walk &walk, Below from) {
        uint32_t *mask = walk.made->mask.data();
        int32_t end = trie.nodes[from.node].skip;
        int32_t total_from = from.total ? from.node : end;  // first node outside of the escape that was walked last
        stack[trie.depth(from.node)] = {from.state, from.other};
        for (int32_t node = from.node + 1; node < end;) {
            Trie::Node here = trie.nodes[node];
            if (node >= total_from && trie.quiet[node]) {
                node = here.skip;
                continue;
            }
            int32_t depth = here.depth_byte >> 8, byte = here.depth_byte & 255;
            Pair at = stack[depth - 1];
            int32_t next = table->row(at.state)[byte], other = table->row(at.other)[byte];
            if (next == other) {
                node = here.skip;
                continue;
            }
            uint8_t ends = next < 0 ? 2 : table->accept[next];
            bool other_goes_on = other >= 0 && table->accept[other] != 2;
            if (next < 0) {
                clear(node, here.skip, mask);
                walk.replace(node, here.skip);
                node = here.skip;
                continue;
            }
            trie.set(node, mask);
            walk.replace(node, node + 1);
            if (ends == 2) {
                walk.made->closes.push_back(node);
                if (other_goes_on) {
                    clear(node + 1, here.skip, mask);
                    walk.replace(node + 1, here.skip);
                }
                node = here.skip;
                continue;
            }
            if (here.skip == node + 1) {
                node++;
                continue;
            }
            if (ends) walk.made->exits.push_back(node);
            bool total = node >= total_from && byte != '\\';
            if (!total) total_from = std::max(total_from, here.skip);
            if (!other_goes_on || !table->filled(next) || !table->filled(other)) {
                walk.todo.push_back({node, next, other_goes_on ? other : -1, total});
                node = here.skip;
            } else {
                stack[depth] = {next, other};
                node++;
            }
        }
    }

    void clear(int32_t from, int32_t to, uint32_t *mask) const {
        for (int32_t at = trie.first[from]; at < trie.first[to]; at++) mask[trie.token_ids[at] >> 5] &= ~(1u << (trie.token_ids[at] & 31));
    }

    std::shared_ptr<LexemeMask> bounded(Window bounds) {
        if (!counted.count(bounds.free)) {
            if (!get(bounds.free)) return nullptr;
            count(bounds.free);
        }
        Counted &free = counted[bounds.free];
        auto made = std::make_shared<LexemeMask>();
        made->mask = free.mask(bounds.high < 0 ? free.nodes.size() : bounds.high, trie);
        for (auto [node, characters] : free.closes) {
            if (characters < bounds.low || (bounds.high >= 0 && characters > bounds.high)) continue;
            trie.set(node, made->mask.data());
            made->closes.push_back(node);
        }
        return made;
    }

    // Characters of the free string that every node begins. All rows are there: its mask was made.
    void count(int32_t free) {
        Counted &made = counted[free];
        std::vector<int32_t> over(trie.deepest + 1, 0);  // characters that are over, by depth
        made.nodes.resize(1);
        stack[0].state = free;
        for (int32_t node = 1; node < static_cast<int32_t>(trie.nodes.size());) {
            Trie::Node here = trie.nodes[node];
            int32_t depth = here.depth_byte >> 8, next = table->row(stack[depth - 1].state)[here.depth_byte & 255];
            if (next < 0) {
                node = here.skip;
                continue;
            }
            if (table->accept[next]) {
                made.closes.push_back({node, over[depth - 1]});
                node = here.skip;
                continue;
            }
            over[depth] = over[depth - 1] + (next == free);
            size_t begun = over[depth] + (next != free);
            if (begun >= made.nodes.size()) made.nodes.resize(begun + 1);
            if (here.token != -1) made.nodes[begun].push_back(node);
            stack[depth].state = next;
            node++;
        }
        made.upto.resize(made.nodes.size());
    }
};

}  // namespace plait
