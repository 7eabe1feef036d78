package custom

import (
	"strings"
	"testing"

	"github.com/fettle-dev/fettle/internal/config/strict"
)

func TestNoFaultShowsWhatIsSecret(t *testing.T) {
	for _, text := range []string{
		`headers: "Authorization: Bearer HIDDEN"`, `headers: [{a: HIDDEN}]`, `headers: [[HIDDEN]]`, `headers: {Authorization: HIDDEN}`, `headers: ["HIDDEN"]`,
	} {
		var o HTTPOptions
		o.URL = "http://127.0.0.1/"
		mustHide(t, text, &o)
	}
	for _, text := range []string{`env: "TOKEN=HIDDEN"`, `env: ["HIDDEN"]`, `env: {TOKEN: HIDDEN}`} {
		mustHide(t, text, &ExecOptions{Command: []string{"/bin/true"}})
	}
	mustHide(t, `url: "http://me:HIDDEN@127.0.0.1/"`, &HTTPOptions{})
}

func mustHide(t *testing.T, text string, options any) {
	t.Helper()
	d := strict.NewDecoder("f.yaml")
	d.Mapping(d.Document([]byte(text)), "", strict.Fields(options))
	d.ValidateAt("", options)
	if err := d.Err(); err == nil || strings.Contains(err.Error(), "HIDDEN") {
		t.Errorf("%s: %v", text, err)
	}
}
