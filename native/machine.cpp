// The machine that runs a constraint (constrained/pushdown/native_machine.py): configurations, steps, token masks.
//
// A call that needs something only Python has (a nonterminal's productions, a lexeme table row) answers NEED with a
// list; Python supplies it and calls again. What was found so far is kept, masks half filled included, so that is
// also where Python looks at its deadline. Nothing here starts a thread, and a machine and the Lexemes it shares with
// others belong to one thread at a time.
#include "stacks.h"

namespace plait {

class Machine {
  public:
    Stacks stacks;
    Lexemes *lexemes;
    const uint32_t *eos;
    std::vector<int32_t> doubtful;  // of the mask filled last: tokens that met a dependent nonterminal on their way

    Machine(Lexemes *lexemes, const uint32_t *eos, Stacks::Limits limits) : stacks(lexemes, limits), lexemes(lexemes), eos(eos) {}

    int32_t step(int32_t config, const uint8_t *data, int64_t length) {
        for (int64_t at = 0; at < length; at++)
            if ((config = stacks.step(config, data[at])) < 0) return config;
        return config;
    }

    // Bytes of the one-way chain from `config`; stops before `most`. A chain that needs something goes on from where it
    // was when it is asked for again: a long literal needs a row for each of its characters.
    int64_t forced(int32_t config, uint8_t *data, int64_t most) {
        if (chain.start != config) chain = {config, config, {}};
        while (static_cast<int64_t>(chain.bytes.size()) < most) {
            int32_t byte = stacks.only_byte(chain.at);
            if (byte == DEAD) break;
            if (byte < 0) return byte;
            int32_t after = stacks.step(chain.at, byte);
            if (after < 0) return after;
            chain.at = after;
            chain.bytes.push_back(static_cast<uint8_t>(byte));
        }
        int64_t length = std::min<int64_t>(chain.bytes.size(), most);
        std::copy_n(chain.bytes.begin(), length, data);
        chain = {-1, -1, {}};
        return length;
    }

    // Configurations with the same number have the same mask.
    int32_t mask_number(int32_t config) {
        if (config < static_cast<int32_t>(number_of.size()) && number_of[config] >= 0) return number_of[config];
        int32_t all = stacks.plain(config);
        if (all < 0) return all;
        std::vector<Part> parts;
        int32_t status = split(all, parts);
        if (status < 0) return status;
        std::vector<int32_t> name{stacks.configs[all].accepting};
        int32_t literals = stacks.configs[all].literals ? stacks.literals_of(all) : -1;
        if (literals < -1) return literals;
        name.push_back(literals);
        for (const Part &part : parts) {
            name.push_back(part.key);
            name.push_back(part.follow);
        }
        std::string bytes(reinterpret_cast<const char *>(name.data()), name.size() * sizeof(int32_t));
        int32_t number = numbers.try_emplace(std::move(bytes), static_cast<int32_t>(numbers.size())).first->second;
        if (config >= static_cast<int32_t>(number_of.size())) number_of.resize(stacks.configs.size(), -1);
        number_of[config] = number;
        return number;
    }

    // The mask of `config` into out[words]; NEED, LIMIT, or AGAIN after about `budget` visited nodes.
    int32_t fill(int32_t config, uint32_t *out, int64_t budget) {
        Job *job = nullptr;
        for (auto &other : jobs)
            if (other->config == config) job = other.get();
        if (!job) {
            auto made = std::make_unique<Job>();
            made->config = config;
            int32_t status = start(*made);
            if (status < 0) return status;
            if (jobs.size() >= 16) jobs.erase(jobs.begin());
            job = made.get();
            jobs.push_back(std::move(made));
        }
        int32_t status = run(*job, budget);
        if (status == NEED || status == AGAIN) return status;
        if (status >= 0) {
            std::memcpy(out, job->mask.data(), job->mask.size() * sizeof(uint32_t));
            doubtful = std::move(job->doubtful);
        }
        for (size_t at = 0; at < jobs.size(); at++)
            if (jobs[at].get() == job) jobs.erase(jobs.begin() + at);
        return status;
    }

    int64_t nbytes() const {
        return stacks.nbytes() + static_cast<int64_t>(number_of.size()) * 4 + static_cast<int64_t>(numbers.size()) * 96 +
               static_cast<int64_t>(jobs.size()) * lexemes->trie.words * 4;
    }

  private:
    struct {
        int32_t start = -1, at = -1;
        std::vector<uint8_t> bytes;
    } chain;  // the forced run that is being walked

    // The lexemes of a configuration that have one mask, and the configuration after any of them has ended (-1: no
    // token goes on there, or nothing may).
    struct Part {
        int32_t key, follow;
        std::shared_ptr<LexemeMask> mask;
        bool doubtful = false;  // a dependent nonterminal stands where it has ended
    };
    struct Place {
        enum : int32_t { BELOW, ENTER, EXITS } what;
        int32_t a, config;  // a node, or for EXITS a part and in its place of `config` the number of a byte
        bool doubtful;      // a dependent nonterminal was met on the way
    };
    struct Job {
        int32_t config;
        std::vector<Part> parts;
        std::vector<Place> todo, blocked;
        std::vector<uint32_t> mask;
        std::vector<int32_t> doubtful;  // tokens
    };

    std::vector<int32_t> number_of;  // configuration -> number of its mask, -1 not known
    std::unordered_map<std::string, int32_t> numbers;
    std::vector<std::unique_ptr<Job>> jobs;

    int32_t split(int32_t config, std::vector<Part> &parts) {
        Stacks::Config at = stacks.configs[config];
        std::vector<std::pair<int32_t, int32_t>> tops;  // key, rest
        bool missing = false;
        for (int32_t i = at.literals; i < at.literals + at.lexemes; i++) {
            const Stacks::Node &top = stacks.nodes[stacks.members[at.first + i]];
            int32_t key = lexemes->table->keys[top.a];
            if (key < 0) {
                stacks.needs->add(Needs::KEY, top.a);
                missing = true;
            }
            tops.push_back({key, top.rest});
        }
        if (missing) return NEED;
        std::sort(tops.begin(), tops.end());
        std::vector<int32_t> rests;
        for (size_t i = 0; i < tops.size();) {
            Part part{tops[i].first, -1, lexemes->get(tops[i].first)};
            rests.clear();
            for (; i < tops.size() && tops[i].first == part.key; i++) rests.push_back(tops[i].second);
            if (!part.mask) {
                missing = true;
                continue;
            }
            if (!part.mask->exits.empty() || !part.mask->closes.empty()) {
                int32_t follow = stacks.close(rests.data(), rests.size(), false);
                part.doubtful = follow >= 0 && stacks.configs[follow].dependents > 0;
                if (follow >= 0) follow = stacks.plain(follow);
                if (follow == LIMIT) return follow;
                if (follow == NEED) missing = true;
                else if (follow >= 0 && stacks.configs[follow].count()) part.follow = follow;
            }
            parts.push_back(std::move(part));
        }
        return missing ? NEED : 0;
    }

    int32_t start(Job &job) {
        int32_t config = stacks.plain(job.config);
        if (config < 0) return config;
        int32_t status = split(config, job.parts);
        if (status < 0) return status;
        job.mask.assign(lexemes->trie.words, 0);
        if (stacks.configs[config].accepting)
            for (size_t word = 0; word < job.mask.size(); word++) job.mask[word] = eos[word];
        if (stacks.configs[config].literals) {
            int32_t literals = stacks.literals_of(config);
            if (literals < 0) return literals;
            job.todo.push_back({Place::BELOW, 0, literals, false});
        }
        for (size_t i = 0; i < job.parts.size(); i++) {
            Part &part = job.parts[i];
            const uint32_t *mask = part.mask->mask.data();
            for (size_t word = 0; word < job.mask.size(); word++) job.mask[word] |= mask[word];
            if (part.doubtful)
                for (int32_t node : part.mask->closes) doubt(job, node);
            if (part.follow < 0) continue;
            lexemes->index(*part.mask);
            for (size_t byte = 0; byte < part.mask->value.size(); byte++)
                job.todo.push_back({Place::EXITS, static_cast<int32_t>(i), static_cast<int32_t>(byte), part.doubtful});
        }
        return 0;
    }

    int32_t run(Job &job, int64_t budget) {
        const Trie &trie = lexemes->trie;
        while (!job.todo.empty()) {
            if (budget <= 0 || stacks.crowded()) return AGAIN;
            if (stacks.needs->full()) return NEED;
            Place at = job.todo.back();
            job.todo.pop_back();
            if (at.what == Place::BELOW) {
                if (below(job, at, budget) == LIMIT) return LIMIT;
            } else if (at.what == Place::ENTER) {
                budget--;
                int32_t target = stacks.step(at.config, trie.byte(at.a));
                if (target == LIMIT) return target;
                enter(job, at.a, at.config, target, at.doubtful);
            } else {
                const Part &part = job.parts[at.a];
                budget--;
                int32_t target = stacks.step(part.follow, part.mask->value[at.config]);
                if (target == LIMIT) return target;
                if (target == NEED) job.blocked.push_back(at);
                if (target < 0) continue;
                int32_t from = part.mask->first[at.config], to = part.mask->first[at.config + 1];
                budget -= to - from;
                for (; from < to; from++) enter(job, part.mask->node[from], part.follow, target, at.doubtful);
            }
        }
        job.todo.swap(job.blocked);
        return job.todo.empty() ? 0 : NEED;
    }

    void doubt(Job &job, int32_t node) {
        const Trie &trie = lexemes->trie;
        job.doubtful.insert(job.doubtful.end(), trie.token_ids + trie.first[node], trie.token_ids + trie.first[node + 1]);
    }

    // `target` is where node's byte led from `config`.
    void enter(Job &job, int32_t node, int32_t config, int32_t target, bool doubtful) {
        if (target >= 0) {
            lexemes->trie.set(node, job.mask.data());
            if (doubtful || stacks.configs[target].dependents) {
                doubtful = true;
                doubt(job, node);
            }
            if (lexemes->trie.inner(node)) job.todo.push_back({Place::BELOW, node, target, doubtful});
        } else if (target == NEED) {
            job.blocked.push_back({Place::ENTER, node, config, doubtful});
        }
    }

    int32_t below(Job &job, Place at, int64_t &budget) {
        const Trie &trie = lexemes->trie;
        int32_t node = at.a, config = stacks.plain(at.config);
        if (config == NEED) job.blocked.push_back(at);
        if (config < 0) return config;
        if (stacks.configs[config].lexemes) {
            int32_t from = trie.child_first[node], to = trie.child_first[node + 1];
            budget -= 1 + to - from;
            for (; from < to; from++) {
                int32_t child = trie.child[from], target = stacks.step(config, trie.byte(child));
                if (target == LIMIT) return target;
                enter(job, child, config, target, at.doubtful);
            }
            return 0;
        }
        if (!stacks.configs[config].group) stacks.arrange(stacks.configs[config]);
        budget -= 1 + stacks.configs[config].groups;
        for (int32_t group = 0; group < stacks.configs[config].groups; group++) {
            int32_t child = trie.find(node, stacks.configs[config].group[group].byte);
            if (child < 0) continue;
            int32_t target = stacks.follow(config, group);
            if (target == LIMIT) return target;
            enter(job, child, config, target, at.doubtful);
        }
        return 0;
    }
};

}  // namespace plait

using plait::Lexemes;
using plait::Machine;

// Every call that works answers through this: what it found, or NEED, LIMIT (the number of the limit is then needs.count)
// or AGAIN, all below -1. Where memory ran out nothing half made may be used any more, by no machine of the lexemes.
template <class Work> static auto answer(void *machine, Work work) -> decltype(work(*static_cast<Machine *>(machine))) {
    Machine &m = *static_cast<Machine *>(machine);
    m.lexemes->needs->count = 0;
    if (!m.lexemes->broken) {
        try {
            m.stacks.trim();
            return work(m);
        } catch (const std::bad_alloc &) {
            m.lexemes->broken = true;
        }
    }
    m.lexemes->needs->count = plait::Stacks::TOO_LARGE;
    return plait::LIMIT;
}

extern "C" {

// The trie's arrays, `table` and `needs` must outlive the result. See constrained/trie.py and constrained/pushdown/lexemes.py.
// missing: uint8[256], 1 for a byte that no token spells alone. Null where memory ran out.
void *plait_lexemes_new(const uint8_t *byte, const int32_t *depth, const int32_t *skip, const int32_t *token, const int32_t *first,
                        const int32_t *token_ids, int32_t nodes, int32_t words, const uint8_t *missing, const plait::LexemeRows *table,
                        plait::Needs *needs, int64_t max_bytes) {
    try {
        return new Lexemes(plait::Trie(byte, depth, skip, token, first, token_ids, nodes, words), missing, table, needs, max_bytes);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}
void plait_lexemes_window(void *lexemes, int32_t state, int32_t low, int32_t high, int32_t free) {
    static_cast<Lexemes *>(lexemes)->window(state, low, high, free);
}
void plait_lexemes_total(void *lexemes, int32_t state, int32_t free) { static_cast<Lexemes *>(lexemes)->total(state, free); }
void plait_lexemes_free(void *lexemes) { delete static_cast<Lexemes *>(lexemes); }
int64_t plait_lexemes_nbytes(void *lexemes) { return static_cast<Lexemes *>(lexemes)->nbytes; }

// eos: uint32[words], and the lexemes, must outlive the machine.
void *plait_machine_new(void *lexemes, const uint32_t *eos, int64_t max_stacks, int64_t max_depth, int64_t max_bytes, int64_t max_table_bytes) {
    try {
        return new Machine(static_cast<Lexemes *>(lexemes), eos, {max_stacks, max_depth, max_bytes, max_table_bytes});
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}
void plait_machine_free(void *machine) { delete static_cast<Machine *>(machine); }
int64_t plait_machine_nbytes(void *machine) { return static_cast<Machine *>(machine)->nbytes(); }

int64_t plait_machine_configs(void *machine) { return static_cast<int64_t>(static_cast<Machine *>(machine)->stacks.configs.size()); }

int32_t plait_machine_add(void *machine, int32_t nonterminal, const int32_t *items, const uint8_t *text) {
    return answer(machine, [=](Machine &m) {
        m.stacks.add(nonterminal, items, text);
        return 0;
    });
}
int32_t plait_machine_add_dependent(void *machine, int32_t nonterminal) {
    return answer(machine, [=](Machine &m) {
        m.stacks.add_dependent(nonterminal);
        return 0;
    });
}

int32_t plait_machine_begin(void *machine, int32_t nonterminal) {
    return answer(machine, [=](Machine &m) { return m.stacks.begin(nonterminal); });
}

// The configuration after `data`, or -1.
int32_t plait_machine_step(void *machine, int32_t config, const uint8_t *data, int64_t length) {
    return answer(machine, [=](Machine &m) { return m.step(config, data, length); });
}

// 1: the text may end here; 2: and nothing may follow. 4: a stack waits for a dependent nonterminal.
int32_t plait_machine_flags(void *machine, int32_t config) {
    return answer(machine, [=](Machine &m) {
        int32_t waits = m.stacks.configs[config].dependents ? 4 : 0, all = m.stacks.plain(config);
        if (all < 0) return all;
        const auto &at = m.stacks.configs[all];
        return waits | (at.accepting ? 1 : 0) | (at.accepting && at.count() == 0 ? 2 : 0);
    });
}

// The stacks of a configuration (0, the empty one, if it accepts), and a node of them, as `Stacks::look` says: how many
// numbers there are, and the first `most` of them.
int32_t plait_machine_stacks(void *machine, int32_t config, int32_t *out, int32_t most) {
    const std::vector<int32_t> found = static_cast<Machine *>(machine)->stacks.stacks_of(config);
    std::copy_n(found.begin(), std::min<int64_t>(most, found.size()), out);
    return static_cast<int32_t>(found.size());
}
int32_t plait_machine_look(void *machine, int32_t node, int32_t *out, int32_t most) {
    const std::vector<int32_t> found = static_cast<Machine *>(machine)->stacks.look(node);
    std::copy_n(found.begin(), std::min<int64_t>(most, found.size()), out);
    return static_cast<int32_t>(found.size());
}

// The dependent nonterminals on top of stacks, each as often as it stands there: how many, and the first `most` of them.
int32_t plait_machine_markers(void *machine, int32_t config, int32_t *out, int32_t most) {
    const plait::Stacks &stacks = static_cast<Machine *>(machine)->stacks;
    const auto &at = stacks.configs[config];
    for (int32_t i = 0; i < at.dependents && i < most; i++) out[i] = stacks.nodes[stacks.members[at.first + at.literals + at.lexemes + i]].a;
    return at.dependents;
}
int32_t plait_machine_resolved(void *machine, int32_t config, const int32_t *asked, const int32_t *instead, int32_t count) {
    return answer(machine, [=](Machine &m) { return m.stacks.resolve(config, asked, instead, count); });
}

// Bytes written to `data`, fewer than `most` if the chain ended.
int64_t plait_machine_forced(void *machine, int32_t config, uint8_t *data, int64_t most) {
    return answer(machine, [=](Machine &m) { return m.forced(config, data, most); });
}

int32_t plait_machine_mask_number(void *machine, int32_t config) {
    return answer(machine, [=](Machine &m) { return m.mask_number(config); });
}
int32_t plait_machine_fill(void *machine, int32_t config, uint32_t *out, int64_t budget) {
    return answer(machine, [=](Machine &m) { return m.fill(config, out, budget); });
}

// Of the mask filled last: the tokens that met a dependent nonterminal on their way, some twice. How many, and the first `most`.
int64_t plait_machine_doubtful(void *machine, int32_t *out, int64_t most) {
    const std::vector<int32_t> &doubtful = static_cast<Machine *>(machine)->doubtful;
    std::copy_n(doubtful.begin(), std::min<int64_t>(most, doubtful.size()), out);
    return static_cast<int64_t>(doubtful.size());
}
}
