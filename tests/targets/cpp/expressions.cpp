// Regular expressions, streams and exceptions that pass through several frames.
#include <fstream>
#include <iomanip>
#include <iostream>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>

struct Bad : std::runtime_error {
    Bad(const std::string &what, int line) : std::runtime_error(what), line(line) {}
    int line;
};

struct Guard {
    explicit Guard(int &depth) : depth(depth) { depth++; }
    ~Guard() { depth--; }
    int &depth;
};

static int evaluate(std::istringstream &in, int &depth) {
    Guard guard(depth);
    if (depth > 40) throw std::length_error("too deep");
    char c;
    if (!(in >> c)) throw Bad("ends too early", depth);
    if (c == '(') {
        int left = evaluate(in, depth);
        in >> c;
        char op = c;
        int right = evaluate(in, depth);
        in >> c;
        if (c != ')') throw Bad("no )", depth);
        switch (op) {
            case '+': return left + right;
            case '*': return left * right;
            case '/':
                if (right == 0) throw std::domain_error("by zero");
                return left / right;
        }
        throw Bad(std::string("no operator ") + op, depth);
    }
    in.putback(c);
    int value;
    if (!(in >> value)) throw Bad("no number", depth);
    return value;
}

int count_words(const std::string &text, const std::regex &word) {
    auto begin = std::sregex_iterator(text.begin(), text.end(), word);
    return static_cast<int>(std::distance(begin, std::sregex_iterator()));
}

std::string table(int rows) {
    std::ostringstream out;
    for (int i = 0; i < rows; i++) {
        out << std::setw(5) << i << std::hex << std::setfill('0') << i * i << std::dec << '\n';
    }
    return out.str();
}

int main() {
    const std::regex word("([a-z]+)[0-9]*", std::regex::icase), line("^\\s*[0-9a-f]+$");
    int words = count_words("alpha1 beta 22 Gamma33 delta", word), errors = 0, sum = 0;
    for (const char *text : {"(1+2)", "((2*3)+(8/0))", "(1-2)", "(4*", "x", "(((((5)))))"}) {
        std::istringstream in(text);
        int depth = 0;
        try {
            sum += evaluate(in, depth);
        } catch (const Bad &bad) {
            errors += bad.line;
        } catch (const std::exception &error) {
            errors += std::string(error.what()).size() > 3;
        }
    }
    std::istringstream rows(table(20));
    for (std::string row; std::getline(rows, row);) sum += std::regex_match(row, line);
    std::ifstream nowhere("/nowhere/at/all");
    nowhere.exceptions(std::ios::goodbit);
    std::string replaced = std::regex_replace(std::string("a1 b2 c3"), word, "<$1>");
    std::cout << words << ' ' << errors << ' ' << sum << ' ' << replaced << '\n';
}
