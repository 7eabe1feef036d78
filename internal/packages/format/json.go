package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// syntax says where the text stops being JSON.
func syntax(content []byte) error {
	if len(content) > MaxConfig {
		return fmt.Errorf("has %d bytes, more than %d", len(content), MaxConfig)
	}
	var any json.RawMessage
	err := json.Unmarshal(content, &any)
	var at *json.SyntaxError
	if errors.As(err, &at) {
		line := 1 + bytes.Count(content[:min(int(at.Offset), len(content))], []byte("\n"))
		return fmt.Errorf("not valid JSON: line %d: %w", line, err)
	}
	return err
}

// asYAML writes valid JSON such that YAML reads it alike, line by line. YAML takes no tabs between values, no characters
// that cannot be printed, no escaped slash, and no character in two escapes.
func asYAML(content []byte) []byte {
	out := make([]byte, 0, len(content))
	for len(content) > 0 {
		switch r, size := utf8.DecodeRune(content); {
		case r == '\t':
			out, content = append(out, ' '), content[1:]
		case r == '\\':
			written, read := escape(content)
			out, content = append(out, written...), content[read:]
		case r >= 0x7f && r < 0xa0, r == '\uFEFF', r == 0xFFFE, r == 0xFFFF:
			out, content = fmt.Appendf(out, `\u%04x`, r), content[size:]
		default:
			out, content = append(out, content[:size]...), content[size:]
		}
	}
	return out
}

// escape reads one escaped character, and says how long it was.
func escape(content []byte) (written []byte, read int) {
	first, ok := unit(content)
	switch second, pair := unit(content[min(6, len(content)):]); {
	case content[1] == '/':
		return content[1:2], 2
	case !ok:
		return content[:2], 2
	case !utf16.IsSurrogate(first):
		return content[:6], 6
	case pair && utf16.DecodeRune(first, second) != utf8.RuneError:
		return utf8.AppendRune(nil, utf16.DecodeRune(first, second)), 12
	}
	return utf8.AppendRune(nil, utf8.RuneError), 6 // as encoding/json reads half a character
}

// unit reads an escape of the form \uXXXX.
func unit(content []byte) (rune, bool) {
	if len(content) < 6 || content[0] != '\\' || content[1] != 'u' {
		return 0, false
	}
	r, err := strconv.ParseUint(string(content[2:6]), 16, 16)
	return rune(r), err == nil
}
