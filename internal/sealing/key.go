package sealing

import (
	"crypto/hpke"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fettle-dev/fettle/internal/statefile"
)

// keyFormat is the number of the format of keyFile.
const keyFormat = 1

// keyFile is the private key on disk. It is made once and never replaced: what was sealed to it opens with it alone.
type keyFile struct {
	Suite   string `json:"suite"`
	Private []byte `json:"private"`
}

// Key is an agent's key pair.
type Key struct {
	private hpke.PrivateKey
}

func keyPath(stateDir string) string { return filepath.Join(stateDir, "sealing.key") }

// LoadOrCreate reads the key of a state folder, or makes one that is on disk when it returns. The caller holds the
// folder, see statefile.Lock. A key that is there and cannot be read is an error, never replaced.
func LoadOrCreate(stateDir string) (*Key, error) {
	key, err := Load(stateDir)
	if err == nil || !statefile.Missing(err) {
		return key, err
	}
	kem, _, _ := suite()
	private, err := kem.GenerateKey()
	if err != nil {
		return nil, fmt.Errorf("make a key for sealed values: %w", err)
	}
	raw, err := private.Bytes()
	if err != nil {
		return nil, fmt.Errorf("make a key for sealed values: %w", err)
	}
	if err := statefile.Write(keyPath(stateDir), keyFormat, keyFile{Suite: keyPrefix, Private: raw}); err != nil {
		return nil, fmt.Errorf("keep the key for sealed values: %w", err)
	}
	return &Key{private}, nil
}

// Load reads the key of a state folder. statefile.Missing says that there is none yet.
func Load(stateDir string) (*Key, error) {
	path := keyPath(stateDir)
	var f keyFile
	if err := statefile.Read(path, keyFormat, &f); err != nil {
		return nil, fmt.Errorf("read the key for sealed values: %w%s", err, advice(err))
	}
	if mode, err := os.Stat(path); err == nil && mode.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("the key for sealed values can be read by others than its owner: mode %04o; "+
			"consider it known to them: remove %s, and the agent makes another when it is started again", mode.Mode().Perm(), path)
	}
	kem, _, _ := suite()
	private, err := kem.NewPrivateKey(f.Private)
	if f.Suite != keyPrefix {
		err = fmt.Errorf("it is of the suite %q", f.Suite)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %w", path, statefile.ErrDamaged, err)
		return nil, fmt.Errorf("read the key for sealed values: %w%s", err, advice(err))
	}
	return &Key{private}, nil
}

// advice is what to do about a key that is there and is none.
func advice(err error) string {
	if !errors.Is(err, statefile.ErrDamaged) {
		return ""
	}
	return "; restore the file, or remove it and start the agent again: it makes another key, and what was sealed to " +
		"this one is sealed anew to that"
}

// PublicKey is what values for this agent are sealed to: "hpke-x25519:" and the key in base64, 56 characters in all.
func (k *Key) PublicKey() string { return encode(keyPrefix, k.private.PublicKey().Bytes()) }
