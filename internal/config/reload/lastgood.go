package reload

import (
	"path/filepath"

	"github.com/fettle-dev/fettle/internal/statefile"
)

// lastGoodFile lies in the state folder. After a crash it holds the last valid file or the one before.
const lastGoodFile = "last-good-nodeagent.json"

const lastGoodFormat = 1

// lastGood is a configuration file as it was when it was valid.
type lastGood struct {
	// Path that the content was read from; another file's content is not taken for this one's.
	Path string `json:"path"`
	// Content of the file.
	Content string `json:"content"`
}

// recall gives the last valid content of a file; nil when none is known.
func recall(stateDir, path string) []byte {
	var last lastGood
	if err := statefile.Read(filepath.Join(stateDir, lastGoodFile), lastGoodFormat, &last); err != nil || last.Path != path || last.Content == "" {
		return nil // missing, damaged, of another agent, or of a start without a file: then there is none
	}
	return []byte(last.Content)
}

// remember stores the content durably. It writes nothing when that is what is stored.
func remember(stateDir, path string, content []byte) error {
	file := filepath.Join(stateDir, lastGoodFile)
	var last lastGood
	now := lastGood{Path: path, Content: string(content)}
	if err := statefile.Read(file, lastGoodFormat, &last); err == nil && last == now {
		return nil
	}
	return statefile.Write(file, lastGoodFormat, now)
}
