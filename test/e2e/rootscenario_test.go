//go:build rootonly

package e2e_test

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monoplane.dev/test/containerd"
	"monoplane.dev/test/lifecycle"
)

// actDir is where containers have the directory of their marks, with the program act.
const actDir = "/act"

// boxedScenario returns the pod of a scenario with containers that find the program and the journal of their marks in
// a directory of the machine.
func boxedScenario(s *lifecycle.Scenario, journal string) *corev1.Pod {
	p := s.Real(containerd.BoxImage, actDir+"/act", actDir+"/"+filepath.Base(journal))
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "act", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: filepath.Dir(journal)}}})
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			list[i].VolumeMounts = append(list[i].VolumeMounts, corev1.VolumeMount{Name: "act", MountPath: actDir})
		}
	}
	return p
}

// boxedPrograms are copies of the programs that scenarios run, from which each scenario has links: one of them has
// megabytes.
type boxedPrograms struct{ dir string }

func newBoxedPrograms(t *testing.T) boxedPrograms {
	t.Helper()
	b := boxedPrograms{t.TempDir()}
	for _, name := range []string{"act", "act-health"} {
		text, err := os.ReadFile(binary(t, name))
		if err == nil {
			err = writeProgram(filepath.Join(b.dir, name), text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// newJournal makes the journal of a scenario that a user's cluster plays, with the programs beside it.
func (b boxedPrograms) newJournal(t *testing.T, uid int) string {
	t.Helper()
	journal := newJournal(t)
	dir := filepath.Dir(journal)
	programs, err := os.ReadDir(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		if err := os.Link(filepath.Join(b.dir, p.Name()), filepath.Join(dir, p.Name())); err != nil {
			t.Fatal(err)
		}
	}
	mine(t, uid, journal)
	mine(t, uid, dir)
	return journal
}
