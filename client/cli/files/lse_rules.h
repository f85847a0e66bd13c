#ifndef ANNULUS_CLIENT_CLI_FILES_LSE_RULES_H_
#define ANNULUS_CLIENT_CLI_FILES_LSE_RULES_H_

#include <map>
#include <string>

#include "attention/spec/spec.h"

namespace annulus {

// The properties of a forward job that determine its result beside tensors and scale, as compact
// proto3 JSON for a file's notes. LseRulesOf(): sequences, masks and modifiers, which determine the
// LSE (of a bias only its presence). OutputRulesOf(): dropout, which determines only the output; {}
// without it. Equal specs, written in the same way, give equal texts.
std::string LseRulesOf(const AttentionSpec& spec);
std::string OutputRulesOf(const AttentionSpec& spec);

// The form for a file. Above 1 KiB, each part and each modifier of more than 128 bytes is replaced
// by "sha256:" and its digest.
std::string Folded(const std::string& rules);

// True if the rules of a file equal the wanted ones: folded or not, or as one digest of all. Rules
// that are no JSON are equal only as texts.
bool AreSameRules(const std::string& said, const std::string& wanted);

// The parts in which the rules differ, shortened and escaped: "the forward job had masks
// [{"causal":true}] and modifiers {"softCap":3}; this one has no masks and no modifiers".
std::string RulesDifference(const std::string& said, const std::string& wanted);

// PartOfRules(): the members of a part ("modifiers" or "dropout") by name, as compact JSON, folded
// if long; empty if the part is absent or unreadable. RulesOfPart(): rules that have only that
// part.
std::map<std::string, std::string> PartOfRules(const std::string& rules, const char* part);
std::string RulesOfPart(const char* part, const std::map<std::string, std::string>& members);

// The shortest text that gives the same number, for example "0.3".
std::string ShortestText(double number);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_LSE_RULES_H_
