package sealing

import (
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// The names of the suite begin a public key and a sealed value, so that another suite can stand beside it one day.
const (
	keyPrefix    = "hpke-x25519:"
	sealedPrefix = "hpke-x25519-hkdf-sha256-aes256gcm:"
)

// encapsulated is the length in bytes of the key that HPKE puts before the ciphertext, Nenc of DHKEM(X25519).
const encapsulated = 32

// purpose is the "info" of HPKE: a value that was sealed by the same key for another purpose does not open.
const purpose = "fettle.dev sealed value 1"

// ErrNotOpened says that a value was not sealed to this key for this place, or was altered. Which of these cannot be
// told, by the nature of the thing.
var ErrNotOpened = errors.New("it was sealed to another key or for another place, or it was altered")

// Binding is the place a sealed value is meant for. A value that is copied to another node, another piece of work or
// another name does not open there.
type Binding struct {
	// NodeUID is the UID of the Node object, so that a machine that took over a name cannot open what was meant for the
	// one before.
	NodeUID string `json:"nodeUID"`
	// Work names what the value is used for, e.g. the UID of a NodeWright.
	Work string `json:"work"`
	// Name is the value's own name there.
	Name string `json:"name"`
}

// bytes are the same for equal bindings alone: JSON tells where each part ends.
func (b Binding) bytes() []byte {
	text, err := json.Marshal(b)
	if err != nil {
		panic(err) // three strings can always be encoded
	}
	return text
}

// suite is what every value is sealed by.
func suite() (hpke.KEM, hpke.KDF, hpke.AEAD) {
	return hpke.DHKEM(ecdh.X25519()), hpke.HKDFSHA256(), hpke.AES256GCM()
}

// Seal seals a value to an agent's public key, for one place. The result is text.
func Seal(publicKey string, plaintext []byte, to Binding) (string, error) {
	kem, kdf, aead := suite()
	raw, err := decode(keyPrefix, publicKey)
	if err != nil {
		return "", fmt.Errorf("read public key: %w", err)
	}
	key, err := kem.NewPublicKey(raw)
	if err != nil {
		return "", fmt.Errorf("read public key: %w", err)
	}
	encapsulation, sender, err := hpke.NewSender(key, kdf, aead, []byte(purpose))
	if err != nil {
		return "", fmt.Errorf("seal a value: %w", err)
	}
	ciphertext, err := sender.Seal(to.bytes(), plaintext)
	if err != nil {
		return "", fmt.Errorf("seal a value: %w", err)
	}
	return encode(sealedPrefix, append(encapsulation, ciphertext...)), nil
}

// Open gives the value that was sealed to this key for this place, or ErrNotOpened.
func (k *Key) Open(sealed string, at Binding) ([]byte, error) {
	_, kdf, aead := suite()
	raw, err := decode(sealedPrefix, sealed)
	if err != nil {
		return nil, fmt.Errorf("open a sealed value: %w", err)
	}
	if len(raw) < encapsulated {
		return nil, fmt.Errorf("open a sealed value: %w", ErrNotOpened)
	}
	recipient, err := hpke.NewRecipient(raw[:encapsulated], k.private, kdf, aead, []byte(purpose))
	if err != nil {
		return nil, fmt.Errorf("open a sealed value: %w", ErrNotOpened)
	}
	plaintext, err := recipient.Open(at.bytes(), raw[encapsulated:])
	if err != nil {
		return nil, fmt.Errorf("open a sealed value: %w", ErrNotOpened)
	}
	return plaintext, nil
}

func encode(prefix string, raw []byte) string {
	return prefix + base64.StdEncoding.EncodeToString(raw)
}

func decode(prefix, text string) ([]byte, error) {
	content, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return nil, fmt.Errorf("it does not start with %q", prefix)
	}
	if strings.ContainsAny(content, "\r\n") { // which the decoder would pass over
		return nil, errors.New("it has line breaks")
	}
	return base64.StdEncoding.Strict().DecodeString(content)
}
