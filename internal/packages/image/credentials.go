package image

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
)

// Credentials of registries. The zero value has none.
type Credentials struct {
	entries []entry
}

// entry is for a registry, or for the repositories below a path in it.
type entry struct {
	at   string
	auth authn.AuthConfig
}

// ReadCredentials reads the form of ~/.docker/config.json, which pull secrets have too. An error does not show them.
func ReadCredentials(content []byte) (Credentials, error) {
	var file struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if json.Unmarshal(content, &file) != nil {
		return Credentials{}, fmt.Errorf("read pull credentials: not of the form {\"auths\": {…}}")
	}
	var c Credentials
	for at, raw := range file.Auths {
		e := entry{at: bare(at)}
		if json.Unmarshal(raw, &e.auth) != nil {
			return Credentials{}, fmt.Errorf("read pull credentials: those of %s are malformed", at)
		}
		c.entries = append(c.entries, e)
	}
	slices.SortFunc(c.entries, func(a, b entry) int { return len(b.at) - len(a.at) })
	return c, nil
}

// bare leaves of an address what repositories' names begin with.
func bare(at string) string {
	at = strings.TrimPrefix(strings.TrimPrefix(at, "https://"), "http://")
	at = strings.TrimSuffix(at, "/")
	if host, path, _ := strings.Cut(at, "/"); path == "v1" || path == "v2" {
		return host
	}
	return at
}

// Resolve finds the credentials for a repository: the longest address that its name begins with. It makes Credentials an
// authn.Keychain.
func (c Credentials) Resolve(target authn.Resource) (authn.Authenticator, error) {
	for _, e := range c.entries {
		if rest, ok := strings.CutPrefix(target.String(), e.at); ok && (rest == "" || rest[0] == '/') {
			return authn.FromConfig(e.auth), nil
		}
	}
	return authn.Anonymous, nil
}
