package daemonset

import (
	"encoding/json"
	"maps"
	"os"
	"testing"
)

// with lays one object over another, which stays as it is; nil removes. Of lists the one above counts.
func with(over, under object) object {
	merged := maps.Clone(under)
	for k, v := range over {
		inner, isObject := v.(object)
		below, wasObject := merged[k].(object)
		if isObject && wasObject {
			merged[k] = with(inner, below)
		} else {
			merged[k] = v
		}
	}
	return merged
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	return text
}

// file keeps content where kubectl finds it; test names have commas, by which kubectl splits.
func file(t *testing.T, content string) string {
	t.Helper()
	f, err := os.CreateTemp("", "fettle-object-*.json")
	must(t, err)
	defer f.Close()
	t.Cleanup(func() { _ = os.Remove(f.Name()) })
	_, err = f.WriteString(content)
	must(t, err)
	return f.Name()
}
