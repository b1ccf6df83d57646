package payload

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
)

// Nested returns the directories that a volume needs so that others can be mounted inside it, where a container mounts
// one below the other: nothing can be made in a volume that containers cannot write to. What lies two volumes deep is
// left to the one between, and what may be a file to the start of the container, when it can be seen.
func Nested(p *corev1.Pod, volume string) ([]string, error) {
	var dirs []string
	for _, c := range every(p) {
		all := make([]string, 0, len(c.GetVolumeMounts()))
		var mine, files []string
		for _, m := range c.GetVolumeMounts() {
			at := path.Clean(m.GetMountPath())
			all = append(all, at)
			if m.GetName() == volume {
				mine = append(mine, at)
			}
			if m.GetSubPath() != "" || m.GetSubPathExpr() != "" || isHostPath(p, m.GetName()) {
				files = append(files, at)
			}
		}
		slices.Sort(all)
		for _, at := range mine {
			if strings.HasPrefix(at, "../") {
				return nil, fmt.Errorf("invalid container mount point %v", at)
			}
			dirs = append(dirs, slices.DeleteFunc(below(at, all), func(dir string) bool {
				return slices.Contains(files, at+"/"+dir)
			})...)
		}
	}
	return dirs, nil
}

// below returns which of all paths lie below one, but not below another of them, as seen from there.
func below(at string, all []string) []string {
	var out []string
	for _, other := range all {
		rest, ok := strings.CutPrefix(other, at+"/")
		if ok && !slices.ContainsFunc(out, func(outer string) bool { return strings.HasPrefix(rest, outer+"/") }) {
			out = append(out, rest)
		}
	}
	return out
}

// isHostPath reports whether a volume of the pod is a path of the machine's.
func isHostPath(p *corev1.Pod, volume string) bool {
	return slices.ContainsFunc(p.GetSpec().GetVolumes(), func(v *corev1.Volume) bool {
		return v.GetName() == volume && v.GetVolumeSource().GetHostPath() != nil
	})
}
