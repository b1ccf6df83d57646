//go:build rootonly

package crash

import "testing"

// A short run on a disk that is slow and fails, where TestCrash may have none.
//
// spec: DEL-13, SAFE-1
func TestRootCrash(t *testing.T) {
	if err := needDisk(); err != nil {
		t.Skipf("no file system that fails can be mounted here: %v", err)
	}
	torment(t, []kind{killServer, slowDisk, failDisk, killShim}, 8)
}
