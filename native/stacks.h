// Sets of stacks, determinized byte by byte: the states ("configurations") of one constraint's machine.
//
//     stack node   (item, rest), hash-consed; node 0 is the empty stack. Items: a nonterminal, a lexeme state, a literal
//                  from one of its bytes on.
//     join         a node that stands for a set of stacks. No two of them have the same top: those are one, on the join
//                  of their rests, and so on down. So a join has at most as many stacks as the rules have items, and
//                  recursive alternatives with a common beginning do not double the stacks at each level.
//     configuration  hash-consed set of stacks whose top reads a byte (literals first, by byte; then lexemes), and
//                    whether the empty stack is among them. A stack whose top is a dependent nonterminal stays as it is;
//                    `plain` gives the set with those expanded to all that they could be.
#pragma once

#include <string>
#include <unordered_map>

#include "token_walk.h"

namespace plait {

class Stacks {
  public:
    enum Kind : uint32_t { NONTERMINAL = 0, LEXEME = 1, LITERAL = 2, JOIN = 3 };
    enum : int32_t { TOO_MANY_STACKS = 1, TOO_DEEP = 2, TOO_LARGE = 3, NO_CONTINUATION = 4 };
    struct Limits {
        int64_t stacks, depth, bytes, table_bytes;
    };
    struct Node {
        int32_t a, b, rest;  // nonterminal, lexeme state, or literal and the place in it; join: its first, how many
        uint32_t kind : 2, depth : 30;
    };
    struct Group {  // the literals of a configuration that go on with `byte`
        int32_t target;
        uint8_t byte;
    };
    struct Config {
        int64_t first;  // in `members`
        int32_t literals, lexemes, dependents, groups;
        uint32_t hash;
        int32_t plain;  // -2 not known yet
        bool accepting;
        Group *group;    // null, or one a byte
        int32_t *dense;  // null, or 256 targets (where lexemes are among the tops)
        int32_t count() const { return literals + lexemes + dependents; }
    };

    Stacks(Lexemes *lexemes, Limits limits) : lexemes(lexemes), needs(lexemes->needs), limits(limits) {
        nodes.push_back({0, 0, 0, NONTERMINAL, 0});
        mark.push_back(0);
        alone.push_back(NEED);
        node_slots.assign(256, -1);
        config_slots.assign(64, -1);
        literal_first.push_back(0);
    }
    ~Stacks() { drop(); }
    Stacks(const Stacks &) = delete;

    // Productions of a nonterminal: items is [how many, then for each: its length, then value * 4 + kind per item]; a
    // literal's value is its length, its bytes come next in `text`.
    void add(int32_t nonterminal, const int32_t *items, const uint8_t *text) {
        know(nonterminal);
        if (produced[nonterminal] >= 0) return;
        produced[nonterminal] = static_cast<int32_t>(pool.size());
        int32_t many = *items++;
        pool.push_back(many);
        while (many-- > 0) {
            int32_t length = *items++;
            pool.push_back(length);
            while (length-- > 0) {
                int32_t item = *items++;
                if ((item & 3) == LITERAL) {
                    pool.push_back(literal(text, item >> 2) << 2 | LITERAL);
                    text += item >> 2;
                } else {
                    pool.push_back(item);
                }
            }
        }
    }

    // A nonterminal that stays unexpanded in configurations; its productions are asked for when `plain` wants them.
    void add_dependent(int32_t nonterminal) {
        know(nonterminal);
        is_dependent[nonterminal] = 1;
    }

    int32_t begin(int32_t nonterminal) {
        int32_t node = push(NONTERMINAL, nonterminal, 0, 0);
        return node < 0 ? node : close(&node, 1, false);
    }

    // The configuration after one byte; DEAD, NEED or LIMIT.
    int32_t step(int32_t config, uint8_t byte) {
        Config &at = configs[config];
        if (at.dependents) {
            int32_t all = plain(config);
            return all < 0 ? all : step(all, byte);
        }
        if (at.lexemes) {
            if (!at.dense) {
                at.dense = new int32_t[256];
                std::fill(at.dense, at.dense + 256, NEED);
                table_bytes += 1024;
            }
            int32_t target = at.dense[byte];
            if (target == NEED && (target = compute(config, byte)) >= DEAD) configs[config].dense[byte] = target;
            return target;
        }
        if (!at.group) arrange(at);
        for (int32_t low = 0, high = at.groups; low < high;) {
            int32_t middle = (low + high) / 2;
            if (at.group[middle].byte == byte) return follow(config, middle);
            if (at.group[middle].byte < byte) low = middle + 1;
            else high = middle;
        }
        return DEAD;
    }

    // The same for the group-th byte of a configuration without lexemes.
    int32_t follow(int32_t config, int32_t group) {
        int32_t target = configs[config].group[group].target;
        if (target == NEED && (target = compute(config, configs[config].group[group].byte)) >= DEAD) configs[config].group[group].target = target;
        return target;
    }

    void arrange(Config &at) {
        const int32_t *member = members.data() + at.first;
        std::vector<Group> found;
        for (int32_t i = 0; i < at.literals; i++) {
            uint8_t byte = next_byte(member[i]);
            if (!lexemes->missing[byte] && (found.empty() || found.back().byte != byte)) found.push_back({NEED, byte});
        }
        at.groups = static_cast<int32_t>(found.size());
        at.group = new Group[found.size() + 1];
        std::copy(found.begin(), found.end(), at.group);
        table_bytes += static_cast<int64_t>(sizeof(Group)) * (found.size() + 1);
    }

    // `config` with its dependent tops expanded to everything they could be.
    int32_t plain(int32_t config) {
        if (!configs[config].dependents) return config;
        if (configs[config].plain >= 0) return configs[config].plain;
        std::vector<int32_t> tops = stacks_of(config);
        int32_t found = close(tops.data(), tops.size(), true);
        if (found == DEAD) return limit(NO_CONTINUATION);
        if (found >= 0) configs[config].plain = found;
        return found;
    }

    // The stacks of a configuration; the empty one (0) among them if it accepts.
    std::vector<int32_t> stacks_of(int32_t config) const {
        const Config &at = configs[config];
        std::vector<int32_t> found(members.begin() + at.first, members.begin() + at.first + at.count());
        if (at.accepting) found.push_back(0);
        return found;
    }

    // A node as Python reads it: its kind; a nonterminal, a lexeme state, or how many bytes are left of a literal; the node
    // below it, or for a join the stacks that it stands for.
    std::vector<int32_t> look(int32_t node) const {
        const Node &at = nodes[node];
        std::vector<int32_t> found{static_cast<int32_t>(at.kind), at.a};
        if (at.kind == JOIN) found.insert(found.end(), joined.begin() + at.a, joined.begin() + at.a + at.b);
        else found.push_back(at.rest);
        if (at.kind == LITERAL) found[1] = static_cast<int32_t>(literal_first[at.a + 1] - literal_first[at.a]) - at.b;
        return found;
    }

    // The configuration of some stacks: their tops expanded until each reads a byte. NEED or LIMIT where that fails.
    int32_t close(const int32_t *tops, size_t count, bool expand_dependents) {
        bool single = count == 1 && !expand_dependents;
        int32_t only = single ? tops[0] : 0;
        if (single && alone[only] != NEED) return alone[only];
        opening.assign(tops, tops + count);
        settled.clear();
        int32_t found = finish(false, expand_dependents);
        if (single && found >= DEAD) alone[only] = found;
        return found;
    }

    // `config` with each dependent top replaced: by the nonterminal `instead[i]` where it is `asked[i]`; -1: taken out.
    int32_t resolve(int32_t config, const int32_t *asked, const int32_t *instead, int32_t count) {
        Config at = configs[config];
        opening.clear();
        for (int32_t i = at.literals + at.lexemes; i < at.count(); i++) {
            Node top = nodes[members[at.first + i]];
            for (int32_t j = 0; j < count; j++) {
                if (asked[j] != top.a || instead[j] < 0) continue;
                int32_t node = push(NONTERMINAL, instead[j], 0, top.rest);
                if (node < 0) return node;
                opening.push_back(node);
            }
        }
        // what stays is expanded already: a lexeme that may end here must not bring its dependent rest in again
        settled.clear();
        for (int32_t i = 0; i < at.literals + at.lexemes; i++) settled.push_back(key(members[at.first + i]));
        return finish(at.accepting, false);
    }

    // The configuration of exactly these members, which are sorted literals: a part of another configuration.
    int32_t literals_of(int32_t config) {
        Config at = configs[config];
        if (!at.lexemes && !at.accepting && !at.dependents) return config;
        keys.clear();
        for (int32_t i = 0; i < at.literals; i++) keys.push_back(key(members[at.first + i]));
        return intern(false);
    }

    // The one byte that may come, DEAD if there are several or none or the text may end here; NEED, LIMIT.
    int32_t only_byte(int32_t config) {
        if (configs[config].dependents && (config = plain(config)) < 0) return config;
        const Config &at = configs[config];
        if (at.accepting) return DEAD;
        const int32_t *member = members.data() + at.first;
        int32_t only = DEAD;
        for (int32_t i = 0; i < at.literals; i++) {
            int32_t byte = next_byte(member[i]);
            if (lexemes->missing[byte] || byte == only) continue;
            if (only >= 0) return DEAD;
            only = byte;
        }
        bool missing = false;
        for (int32_t i = at.literals; i < at.literals + at.lexemes; i++) {
            int32_t state = nodes[member[i]].a;
            if (!lexemes->table->filled(state)) {
                needs->add(Needs::ROW, state);
                missing = true;
                continue;
            }
            const int32_t *row = lexemes->table->row(state);
            for (int32_t byte = 0; byte < 256; byte++) {
                if (row[byte] < 0 || byte == only) continue;
                if (only >= 0) return DEAD;
                only = byte;
            }
        }
        return missing ? NEED : only;
    }

    int32_t push(uint32_t kind, int32_t a, int32_t b, int32_t rest) {
        uint64_t hash = (static_cast<uint64_t>(a) << 34 ^ static_cast<uint64_t>(rest) << 2 ^ kind) * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(b);
        hash = (hash ^ hash >> 29) * 0xBF58476D1CE4E5B9ull;
        size_t mask = node_slots.size() - 1, slot = (hash >> 32) & mask;
        for (; node_slots[slot] >= 0; slot = (slot + 1) & mask) {
            const Node &other = nodes[node_slots[slot]];
            if (other.a == a && other.rest == rest && other.b == b && other.kind == kind) return node_slots[slot];
        }
        if (static_cast<int64_t>(nodes[rest].depth) >= limits.depth) return limit(TOO_DEEP);
        if (identity_bytes() > limits.bytes) return limit(TOO_LARGE);
        int32_t made = static_cast<int32_t>(nodes.size());
        nodes.push_back({a, b, rest, kind, nodes[rest].depth + 1u});
        node_hash.push_back(static_cast<uint32_t>(hash >> 32));
        mark.push_back(0);
        alone.push_back(NEED);
        node_slots[slot] = made;
        if (nodes.size() * 2 > node_slots.size()) {
            node_slots.assign(node_slots.size() * 2, -1);
            for (int32_t node = 1; node < static_cast<int32_t>(nodes.size()); node++)
                if (nodes[node].kind != JOIN) place(node_slots, node_hash[node - 1], node);
        }
        return made;
    }

    int64_t identity_bytes() const {
        return static_cast<int64_t>(nodes.size()) * (sizeof(Node) + 20) + static_cast<int64_t>(configs.size()) * (sizeof(Config) + 8) +
               static_cast<int64_t>(members.size()) * 4 + static_cast<int64_t>(joined.size()) * 12 + static_cast<int64_t>(text.size()) + static_cast<int64_t>(pool.size()) * 4;
    }
    int64_t nbytes() const { return identity_bytes() + table_bytes + unions_kept; }

    // Transitions are forgotten once they take more than the limit; never in the middle of a call.
    void trim() {
        if (table_bytes > limits.table_bytes) drop();
    }
    // Far over the limit: a long call should come to its end, to go on after a trim.
    bool crowded() const { return table_bytes > 4 * limits.table_bytes + (1 << 20); }

    Lexemes *lexemes;
    Needs *needs;
    Limits limits;
    std::vector<Node> nodes;
    std::vector<Config> configs;
    std::vector<int32_t> members;

  private:
    // Joins that may be made of others: so many, and so many more for each configuration. Past it stacks are joined as
    // they are, which is right as well, and only larger.
    static constexpr int64_t FIRST_UNIONS = 4096, EACH_UNIONS = 64;
    static constexpr int64_t MOST_UNIONS = 16 << 20;  // bytes; past it all are worked out again

    std::vector<int32_t> produced, pool;  // nonterminal -> place in pool, -1 not known
    std::vector<uint8_t> is_dependent, text;
    std::vector<int64_t> literal_first;
    std::unordered_map<std::string, int32_t> literal_of;
    std::vector<uint32_t> mark, node_hash;
    std::vector<int32_t> alone;  // node -> configuration of that stack alone
    std::vector<int32_t> node_slots, config_slots, work, targets;
    std::vector<int32_t> joined;  // the stacks of all joins, one join after another
    std::unordered_map<std::string, int32_t> join_of;  // the bytes of those stacks -> its node
    std::unordered_map<std::string, int32_t> union_of;  // the bytes of stacks -> the join of all, once worked out
    int64_t unions_made = 0, unions_kept = 0;           // how many were; bytes of those that are kept
    std::vector<int32_t> opening, below, unknown;       // scratch of finish
    std::vector<int32_t> found, waiting, rests;         // scratch of expanded and join
    std::vector<uint64_t> keys, settled;
    uint32_t stamp = 0;
    int64_t table_bytes = 0;

    void know(int32_t nonterminal) {
        if (nonterminal < static_cast<int64_t>(produced.size())) return;
        produced.resize(nonterminal + 1, -1);
        is_dependent.resize(nonterminal + 1, 0);
    }
    int32_t limit(int32_t which) {
        needs->count = which;
        return LIMIT;
    }
    // The order of stacks in a configuration.
    uint64_t key(int32_t node) const {
        const Node &top = nodes[node];
        if (top.kind == LITERAL) return static_cast<uint64_t>(next_byte(node)) << 32 | node;
        if (top.kind == LEXEME) return 1ull << 62 | static_cast<uint64_t>(top.a) << 32 | node;
        return 2ull << 62 | node;
    }
    uint8_t next_byte(int32_t node) const { return text[literal_first[nodes[node].a] + nodes[node].b]; }

    int32_t literal(const uint8_t *data, int32_t length) {
        auto [found, added] = literal_of.try_emplace(std::string(reinterpret_cast<const char *>(data), length), static_cast<int32_t>(literal_of.size()));
        if (added) {
            text.insert(text.end(), data, data + length);
            literal_first.push_back(static_cast<int64_t>(text.size()));
        }
        return found->second;
    }

    // The configuration of `settled` and of what `opening` expands into. What comes to light when something ends that is
    // opened here is expanded on its own first, once and for all: a text that may end at each of n levels would expand
    // all of them again at every byte.
    int32_t finish(bool accepting, bool expand_dependents) {
        below.clear();
        while (true) {
            if (!below.empty() && alone[below.back()] != NEED) {
                below.pop_back();
                continue;
            }
            unknown.clear();
            int32_t found;
            if (below.empty()) {
                work.clear();
                keys = settled;
                if (opening.size() > 1)
                    for (int32_t node : opening) ended(node, expand_dependents);
                else
                    work = opening;
                found = unknown.empty() ? expanded(accepting, expand_dependents) : NEED;
            } else {
                work.assign(1, below.back());
                keys.clear();
                found = expanded(false, false);
            }
            if (found >= DEAD && below.empty()) return found;
            if (found >= DEAD) alone[below.back()] = found;
            else if (found != NEED || unknown.empty()) return found;
            below.insert(below.end(), unknown.begin(), unknown.end());
            if (static_cast<int64_t>(below.size()) > 64 * limits.depth) return limit(TOO_DEEP);
        }
    }

    // `node` is what something stood on that has ended. To `unknown` if it must be expanded on its own first.
    void ended(int32_t node, bool expand_dependents) {
        const Node &top = nodes[node];
        bool opens = top.kind == JOIN || (top.kind == NONTERMINAL && node != 0 && !dependent(top.a)) || (top.kind == LEXEME && lexemes->table->accept[top.a]);
        (!opens || expand_dependents || alone[node] != NEED ? work : unknown).push_back(node);
    }
    bool dependent(int32_t nonterminal) const { return nonterminal < static_cast<int64_t>(produced.size()) && is_dependent[nonterminal]; }

    // Expands `work` into `keys` and gives the configuration of those; NEED as well where something is `unknown`.
    int32_t expanded(bool accepting, bool expand_dependents) {
        bool missing = false;
        int64_t visits = 0;
        stamp++;
        found.clear();
        waiting.clear();
        while (true) {
            while (!work.empty()) {
                int32_t node = work.back();
                work.pop_back();
                if (node == 0) {
                    accepting = true;
                    continue;
                }
                if (mark[node] == stamp) continue;
                mark[node] = stamp;
                if (++visits > limits.stacks) return limit(TOO_MANY_STACKS);
                const Node &top = nodes[node];
                if (top.kind == LITERAL) {
                    found.push_back(node);
                } else if (alone[node] != NEED && !expand_dependents) {
                    if (alone[node] == DEAD) continue;
                    const Config &known = configs[alone[node]];
                    accepting |= known.accepting;
                    for (int64_t at = known.first; at < known.first + known.count(); at++) {
                        if (mark[members[at]] == stamp && members[at] != node) continue;
                        mark[members[at]] = stamp;
                        found.push_back(members[at]);
                    }
                } else if (top.kind == LEXEME) {
                    uint8_t ends = lexemes->table->accept[top.a];
                    if (ends != 2) found.push_back(node);
                    if (ends) ended(top.rest, expand_dependents);
                } else if (top.kind == JOIN) {
                    work.insert(work.end(), joined.begin() + top.a, joined.begin() + top.a + top.b);
                } else if (!expand_dependents && dependent(top.a)) {
                    found.push_back(node);
                } else if (top.a >= static_cast<int64_t>(produced.size()) || produced[top.a] < 0) {
                    needs->add(Needs::PRODUCTIONS, top.a);
                    missing = true;
                } else {
                    waiting.push_back(node);
                }
            }
            if (waiting.empty()) break;
            // all that wait with the same nonterminal are opened as one
            Node top = nodes[waiting.back()];
            rests.clear();
            size_t kept = 0;
            for (int32_t node : waiting) {
                if (nodes[node].a == top.a) rests.push_back(nodes[node].rest);
                else waiting[kept++] = node;
            }
            waiting.resize(kept);
            if (rests.size() > 1) {
                int32_t rest = join();
                int32_t node = rest < 0 ? rest : push(NONTERMINAL, top.a, 0, rest);
                if (node < 0) return node;
                mark[node] = stamp;
                top = nodes[node];
            }
            if (!expand(top, expand_dependents)) return LIMIT;
        }
        if (missing || !unknown.empty()) return NEED;
        if (found.size() > 1) {
            std::sort(found.begin(), found.end(), [this](int32_t x, int32_t y) { return x != y && before(x, y); });
        }
        for (size_t first = 0, after; first < found.size(); first = after) {
            Node top = nodes[found[first]];
            rests.clear();
            for (after = first; after < found.size() && same_top(found[first], found[after]); after++) rests.push_back(nodes[found[after]].rest);
            int32_t node = found[first];
            if (rests.size() > 1) {
                int32_t rest = join();
                node = rest < 0 ? rest : push(top.kind, top.a, top.b, rest);
                if (node < 0) return node;
            }
            keys.push_back(key(node));
        }
        std::sort(keys.begin(), keys.end());
        keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
        return keys.empty() && !accepting ? DEAD : intern(accepting);
    }

    // The node that stands for all of `rests`, of which there are at least two.
    int32_t join() {
        if (unions_kept > MOST_UNIONS) {
            union_of.clear();
            unions_kept = 0;
        }
        std::sort(rests.begin(), rests.end());
        rests.erase(std::unique(rests.begin(), rests.end()), rests.end());
        if (rests.size() == 1) return rests[0];
        auto known = union_of.find(bytes_of(rests));
        return known != union_of.end() ? known->second : unite();
    }

    // The same where it is not known: of those with the same top, the rests are joined first.
    int32_t unite() {
        std::vector<std::vector<int32_t>> todo{rests};
        std::vector<int32_t> stacks, below, made;
        while (true) {
            stacks.clear();
            for (int32_t rest : todo.back()) {
                const Node &node = nodes[rest];
                if (rest != 0 && node.kind == JOIN) stacks.insert(stacks.end(), joined.begin() + node.a, joined.begin() + node.a + node.b);
                else stacks.push_back(rest);
            }
            std::sort(stacks.begin(), stacks.end(), [this](int32_t x, int32_t y) { return x != y && before(x, y); });
            stacks.erase(std::unique(stacks.begin(), stacks.end()), stacks.end());
            made.clear();
            size_t waiting_for = todo.size();
            for (size_t first = 0, after; first < stacks.size(); first = after) {
                Node top = nodes[stacks[first]];
                below.clear();
                for (after = first; after < stacks.size() && same_top(stacks[first], stacks[after]); after++) below.push_back(nodes[stacks[after]].rest);
                int32_t node = stacks[first];
                if (below.size() > 1) {
                    std::sort(below.begin(), below.end());
                    auto known = union_of.find(bytes_of(below));
                    if (known == union_of.end()) todo.push_back(below);
                    else if ((node = push(top.kind, top.a, top.b, known->second)) < 0) return node;
                }
                made.push_back(node);
            }
            if (size_t unknown = todo.size() - waiting_for) {
                if (unions_made < FIRST_UNIONS + EACH_UNIONS * static_cast<int64_t>(configs.size())) {
                    unions_made += static_cast<int64_t>(unknown);
                    continue;
                }
                // stacks that have little in common: they stay side by side
                todo.resize(1);
                made.clear();
                for (int32_t rest : todo[0]) {
                    const Node &node = nodes[rest];
                    if (rest != 0 && node.kind == JOIN) made.insert(made.end(), joined.begin() + node.a, joined.begin() + node.a + node.b);
                    else made.push_back(rest);
                }
            }
            int32_t node = stand_for(made);
            if (node < 0) return node;
            union_of[bytes_of(todo.back())] = node;
            unions_kept += static_cast<int64_t>(todo.back().size()) * 4 + 60;
            todo.pop_back();
            if (todo.empty()) return node;
        }
    }

    // The node of a join of exactly these.
    int32_t stand_for(std::vector<int32_t> &stacks) {
        std::sort(stacks.begin(), stacks.end());
        stacks.erase(std::unique(stacks.begin(), stacks.end()), stacks.end());
        if (stacks.size() == 1) return stacks[0];
        auto [known, added] = join_of.try_emplace(bytes_of(stacks), static_cast<int32_t>(nodes.size()));
        if (!added) return known->second;
        if (identity_bytes() > limits.bytes) {
            join_of.erase(known);
            return limit(TOO_LARGE);
        }
        uint32_t depth = 0;
        for (int32_t stack : stacks) depth = std::max(depth, static_cast<uint32_t>(nodes[stack].depth));
        nodes.push_back({static_cast<int32_t>(joined.size()), static_cast<int32_t>(stacks.size()), 0, JOIN, depth});
        joined.insert(joined.end(), stacks.begin(), stacks.end());
        node_hash.push_back(0);
        mark.push_back(0);
        alone.push_back(NEED);
        return known->second;
    }

    static std::string bytes_of(const std::vector<int32_t> &numbers) {
        return std::string(reinterpret_cast<const char *>(numbers.data()), numbers.size() * sizeof(int32_t));
    }

    // By top, the empty stack first.
    bool before(int32_t x, int32_t y) const {
        if (x == 0 || y == 0) return x == 0;
        const Node &one = nodes[x], &other = nodes[y];
        if (one.kind != other.kind) return one.kind < other.kind;
        if (one.a != other.a) return one.a < other.a;
        return one.b != other.b ? one.b < other.b : x < y;
    }
    bool same_top(int32_t x, int32_t y) const {
        if (x == y) return true;
        const Node &one = nodes[x], &other = nodes[y];
        return x != 0 && y != 0 && one.kind == other.kind && one.a == other.a && one.b == other.b;
    }

    bool expand(Node top, bool expand_dependents) {
        const int32_t *at = &pool[produced[top.a]];
        for (int32_t many = *at++; many > 0; many--) {
            int32_t length = *at++, rest = top.rest;
            for (int32_t i = length - 1; i >= 0; i--)
                if ((rest = push(at[i] & 3, at[i] >> 2, 0, rest)) < 0) return false;
            at += length;
            if (length) work.push_back(rest);
            else ended(rest, expand_dependents);
        }
        return true;
    }

    int32_t compute(int32_t config, uint8_t byte) {
        Config at = configs[config];
        targets.clear();
        bool missing = false;
        for (int32_t i = 0; i < at.literals && !lexemes->missing[byte]; i++) {
            int32_t member = members[at.first + i];
            uint8_t value = next_byte(member);
            if (value < byte) continue;
            if (value > byte) break;
            Node top = nodes[member];
            bool done = literal_first[top.a] + top.b + 1 == literal_first[top.a + 1];
            int32_t next = done ? top.rest : push(LITERAL, top.a, top.b + 1, top.rest);
            if (next < 0) return next;
            targets.push_back(next);
        }
        for (int32_t i = at.literals; i < at.literals + at.lexemes; i++) {
            Node top = nodes[members[at.first + i]];
            if (!lexemes->table->filled(top.a)) {
                needs->add(Needs::ROW, top.a);
                missing = true;
                continue;
            }
            int32_t state = lexemes->table->row(top.a)[byte];
            if (state < 0) continue;
            int32_t next = lexemes->table->accept[state] == 2 ? top.rest : push(LEXEME, state, 0, top.rest);
            if (next < 0) return next;
            targets.push_back(next);
        }
        if (missing) return NEED;
        return targets.empty() ? DEAD : close(targets.data(), targets.size(), false);
    }

    // `keys` (sorted) as a configuration.
    int32_t intern(bool accepting) {
        uint64_t hash = accepting ? 0x9E3779B97F4A7C15ull : 0;
        for (uint64_t key : keys) hash = ((hash ^ key) * 0xBF58476D1CE4E5B9ull) ^ (hash >> 31);
        uint32_t short_hash = static_cast<uint32_t>(hash >> 32);
        size_t mask = config_slots.size() - 1, slot = short_hash & mask;
        for (; config_slots[slot] >= 0; slot = (slot + 1) & mask) {
            const Config &other = configs[config_slots[slot]];
            if (other.hash != short_hash || other.accepting != accepting || other.count() != static_cast<int32_t>(keys.size())) continue;
            bool same = true;
            for (size_t i = 0; same && i < keys.size(); i++) same = members[other.first + i] == static_cast<int32_t>(keys[i] & 0xFFFFFFFF);
            if (same) return config_slots[slot];
        }
        if (identity_bytes() > limits.bytes) return limit(TOO_LARGE);
        int32_t made = static_cast<int32_t>(configs.size());
        Config config{static_cast<int64_t>(members.size()), 0, 0, 0, 0, short_hash, NEED, accepting, nullptr, nullptr};
        for (uint64_t key : keys) {
            members.push_back(static_cast<int32_t>(key & 0xFFFFFFFF));
            (key >> 62 == 0 ? config.literals : key >> 62 == 1 ? config.lexemes : config.dependents)++;
        }
        configs.push_back(config);
        config_slots[slot] = made;
        if (configs.size() * 2 > config_slots.size()) {
            config_slots.assign(config_slots.size() * 2, -1);
            for (int32_t i = 0; i < static_cast<int32_t>(configs.size()); i++) place(config_slots, configs[i].hash, i);
        }
        return made;
    }

    static void place(std::vector<int32_t> &slots, uint32_t hash, int32_t what) {
        size_t mask = slots.size() - 1, slot = hash & mask;
        while (slots[slot] >= 0) slot = (slot + 1) & mask;
        slots[slot] = what;
    }

    void drop() {
        for (Config &config : configs) {
            delete[] config.group;
            delete[] config.dense;
            config.group = nullptr;
            config.dense = nullptr;
        }
        table_bytes = 0;
    }
};

}  // namespace plait
