#ifndef ANNULUS_CLIENT_CLI_FILES_LSE_RULES_H_
#define ANNULUS_CLIENT_CLI_FILES_LSE_RULES_H_

#include <map>
#include <string>

#include "attention/spec/spec.h"

namespace annulus {

// What decides the answer of a forward job beside its tensors and its scale, as compact JSON in the
// names of proto3 JSON, for a file to say: of the LSE (sequences, masks and modifiers; of a bias
// that there is one) and of the output alone (dropout; {} without it). The same for specs that say
// the same in the same words.
std::string LseRulesOf(const AttentionSpec& spec);
std::string OutputRulesOf(const AttentionSpec& spec);

// As a file says them: where they are longer than 1 KiB each part, and each modifier, that is
// longer than 128 bytes is "sha256:" and its digest.
std::string Folded(const std::string& rules);

// Whether what a file says is what is wanted, folded or not, or its "sha256:" and digest as a
// whole. Rules that nobody here can read are those of the same text alone.
bool AreSameRules(const std::string& said, const std::string& wanted);

// "the forward job had masks [{"causal":true}] and modifiers {"softCap":3}; this one has no masks
// and no modifiers": the parts in which they differ, shortened; printable, whatever a file says.
std::string RulesDifference(const std::string& said, const std::string& wanted);

// The members of a part, "modifiers" or "dropout", as compact JSON by name, folded where they are
// long; none where the part is not there or cannot be read. And rules of that part alone.
std::map<std::string, std::string> PartOfRules(const std::string& rules, const char* part);
std::string RulesOfPart(const char* part, const std::map<std::string, std::string>& members);

// In as few digits as say it, "0.3".
std::string ShortestText(double number);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_LSE_RULES_H_
