package crash

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// workloads returns the pids of the processes of a run by the uid of their pod. A process is recognised by its
// environment, so that nothing else is ever touched.
func workloads(dir string) (map[string][]int, error) {
	found := map[string][]int{}
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		env, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended, or is not ours
		}
		vars := bytes.Split(env, []byte{0})
		mark, uid := false, ""
		for _, v := range vars {
			if string(v) == envDir+"="+dir {
				mark = true
			}
			if rest, ok := bytes.CutPrefix(v, []byte(envUID+"=")); ok {
				uid = string(rest)
			}
		}
		if !mark {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			return nil, err
		}
		found[uid] = append(found[uid], pid)
	}
	return found, nil
}
