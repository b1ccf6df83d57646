package monoplane

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// machineKey returns the key by which a node name belongs to this machine (spec: NODE-7). It is made on the
// first start and kept in path.
func machineKey(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err == nil {
		if key := strings.TrimSpace(string(data)); key != "" {
			return key, nil
		}
		return "", fmt.Errorf("%s is empty; restore it, or delete it to become a new machine", path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	key := rand.Text()
	return key, os.WriteFile(path, []byte(key+"\n"), 0o600)
}
