package scratch_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fettle-dev/fettle/test/scratch"
)

// ownerVariable makes this test program one that makes a folder and ends without removing it.
const ownerVariable = "FETTLE_TEST_SCRATCH_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) != "" {
		folder, err := scratch.New("scratch-test")
		if err != nil {
			panic(err)
		}
		fmt.Println(folder.Path())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestFoldersOfTheDeadAreRemovedAndThoseOfTheLivingAreNot(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	living, err := scratch.New("scratch-test")
	if err != nil {
		t.Fatal(err)
	}
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	out, err := owner.Output()
	if err != nil {
		t.Fatal(err)
	}
	dead := strings.TrimSpace(string(out))
	if _, err := os.Stat(dead); err != nil {
		t.Fatalf("the folder of the dead: %v", err)
	}

	next, err := scratch.New("scratch-test")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("the folder of the dead is still there: %v", err)
	}
	if _, err := os.Stat(living.Path()); err != nil {
		t.Errorf("the folder of the living is gone: %v", err)
	}
	for _, folder := range []*scratch.Folder{living, next} {
		if err := folder.Remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(folder.Path()); !os.IsNotExist(err) {
			t.Errorf("a removed folder is still there: %v", err)
		}
	}
}
