package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

var (
	workloadKills = flag.Int("workloadkills", 10, "how often the server is killed under workloads")
	workloadSeed  = flag.Uint64("workloadseed", 0, "seed of what is done meanwhile, and of the moments; random when 0")
)

// A member holds a lock on a file of its name as long as it lives, so that the kernel tells of a second one.
const member = `exec 9>BOX/$NAME.lock; flock -n 9 || { echo $NAME $UID_ >>BOX/overlaps; exit 1; }
trap 'exit 0' TERM; echo $NAME >>BOX/starts; while :; do sleep 0.05 9>&-; done`

// An index leaves the uid of each pod that it was run by. Every third fails the first time.
const indexed = `echo $UID_ >>BOX/JOB.runs; sleep 0.1; test $((JOB_COMPLETION_INDEX % 3)) != 0 || ` +
	`{ test -e BOX/JOB.$JOB_COMPLETION_INDEX || { : >BOX/JOB.$JOB_COMPLETION_INDEX; exit 1; }; }`

// A StatefulSet is scaled and updated, its members are deleted, and Jobs are run, while the server, its controllers
// and its agent are killed at random moments and started again: no two processes ever have the same identity, each
// pod of a Job is run once, and the Job counts exactly those that there were. spec: WORK-2, WORK-3, SAFE-1
func TestWorkloadsUnderKills(t *testing.T) {
	t.Parallel()
	seed := *workloadSeed
	if seed == 0 {
		seed = rand.Uint64() //nolint:gosec // it is printed
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable on purpose
	w := &worked{mortal: newMortal(t, shortDir(t)), box: newBox(t)}
	w.live(t)
	t.Cleanup(func() { w.clear(t) })
	w.must(t, func(ctx context.Context, c *kubernetes.Clientset) error {
		_, err := c.AppsV1().StatefulSets("default").Create(ctx, w.set(), metav1.CreateOptions{})
		return ignore(err, apierrors.IsAlreadyExists)
	})
	for round := range *workloadKills {
		if round%4 == 0 {
			name := fmt.Sprintf("sum%d", round)
			w.jobs = append(w.jobs, name)
			w.must(t, func(ctx context.Context, c *kubernetes.Clientset) error {
				_, err := c.BatchV1().Jobs("default").Create(ctx, w.job(name), metav1.CreateOptions{})
				return ignore(err, apierrors.IsAlreadyExists)
			})
		}
		w.disturb(t, random, round)
		time.Sleep(time.Duration(random.IntN(700)) * time.Millisecond) // the moment of the kill is the point
		if err := w.restart(); err != nil {
			t.Fatal(err)
		}
	}
	w.patch(t, `{"spec":{"replicas":3}}`)
	w.settles(t)
	for _, name := range w.jobs {
		w.counts(t, name)
	}
	if overlaps := w.box.read("overlaps"); overlaps != "" {
		t.Errorf("members that began while another one of their name ran:\n%s", overlaps)
	}
	t.Logf("%d members began", strings.Count(w.box.read("starts"), "\n"))
}

// worked is a cluster that dies, with a StatefulSet and Jobs.
type worked struct {
	*mortal

	box  box
	jobs []string
}

// must calls f until it succeeds.
func (w *worked) must(t *testing.T, f func(context.Context, *kubernetes.Clientset) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w.try(ctx, func(c *kubernetes.Clientset) error { return f(ctx, c) }); err != nil {
		t.Fatal(err)
	}
}

// ignore returns err unless it is of a kind that says that nothing is left to do.
func ignore(err error, kind func(error) bool) error {
	if kind(err) {
		return nil
	}
	return err
}

func (w *worked) template(script string) corev1.PodTemplateSpec {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	grace := int64(1)
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{
			Name: "main", Image: "host", Command: []string{"sh", "-c", w.box.sh(script)},
			Env: []corev1.EnvVar{field("NAME", "metadata.name"), field("UID_", "metadata.uid")},
		}}},
	}
}

func (w *worked) set() *appsv1.StatefulSet {
	replicas := int32(3)
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
		ServiceName: "db", Replicas: &replicas, PodManagementPolicy: appsv1.ParallelPodManagement,
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, Template: w.template(member),
	}}
}

// indexes is how many there are of a Job.
const indexes = int32(6)

func (w *worked) job(name string) *batchv1.Job {
	n, at, limit, mode := indexes, int32(3), int32(100), batchv1.IndexedCompletion
	template := w.template(strings.ReplaceAll(indexed, "JOB.", name+"."))
	template.Labels, template.Spec.RestartPolicy = nil, corev1.RestartPolicyNever
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
		Completions: &n, Parallelism: &at, BackoffLimit: &limit, CompletionMode: &mode, Template: template,
	}}
}

// disturb does one of the things that people do with a StatefulSet.
func (w *worked) disturb(t *testing.T, random *rand.Rand, round int) {
	t.Helper()
	switch random.IntN(3) {
	case 0:
		w.patch(t, fmt.Sprintf(`{"spec":{"replicas":%d}}`, 1+random.IntN(4)))
	case 1:
		w.patch(t, fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"round":"%d"}}}}}`, round))
	case 2:
		name := fmt.Sprintf("db-%d", random.IntN(3))
		w.must(t, func(ctx context.Context, c *kubernetes.Clientset) error {
			return ignore(c.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{}), apierrors.IsNotFound)
		})
	}
}

func (w *worked) patch(t *testing.T, patch string) {
	t.Helper()
	w.must(t, func(ctx context.Context, c *kubernetes.Clientset) error {
		_, err := c.AppsV1().StatefulSets("default").Patch(ctx, "db", types.MergePatchType, []byte(patch),
			metav1.PatchOptions{})
		return err
	})
}

// settles waits until all members are there, of the newest revision.
func (w *worked) settles(t *testing.T) {
	t.Helper()
	eventually(t, "three members of the newest revision", func() (bool, string) {
		var s *appsv1.StatefulSet
		w.must(t, func(ctx context.Context, c *kubernetes.Clientset) (err error) {
			s, err = c.AppsV1().StatefulSets("default").Get(ctx, "db", metav1.GetOptions{})
			return err
		})
		is := s.Status
		return is.ObservedGeneration == s.Generation && is.Replicas == 3 && is.ReadyReplicas == 3 &&
			is.UpdatedReplicas == 3, fmt.Sprintf("status %+v", is)
	})
}

// counts waits for the end of a Job and compares what it counted with its pods, and those with what was run.
func (w *worked) counts(t *testing.T, name string) {
	t.Helper()
	var job *batchv1.Job
	eventually(t, "the end of Job "+name, func() (bool, string) {
		w.must(t, func(ctx context.Context, c *kubernetes.Clientset) (err error) {
			job, err = c.BatchV1().Jobs("default").Get(ctx, name, metav1.GetOptions{})
			return err
		})
		return job.Status.CompletionTime != nil, fmt.Sprintf("status %+v", job.Status)
	})
	var pods *corev1.PodList
	w.must(t, func(ctx context.Context, c *kubernetes.Clientset) (err error) {
		pods, err = c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{
			LabelSelector: batchv1.JobNameLabel + "=" + name})
		return err
	})
	ran := strings.Fields(w.box.read(name + ".runs"))
	succeeded, failed := int32(0), int32(0)
	for _, p := range pods.Items {
		times := 0
		for _, uid := range ran {
			if uid == string(p.UID) {
				times++
			}
		}
		switch p.Status.Phase {
		case corev1.PodSucceeded:
			succeeded++
			if times != 1 {
				t.Errorf("pod %s of Job %s has succeeded and was run %d times", p.Name, name, times)
			}
		case corev1.PodFailed:
			failed++
		default:
			t.Errorf("pod %s of Job %s, which has ended, is %s", p.Name, name, p.Status.Phase)
		}
		if times > 1 {
			t.Errorf("pod %s of Job %s was run %d times", p.Name, name, times)
		}
		if slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) {
			t.Errorf("pod %s of Job %s still waits to be counted", p.Name, name)
		}
	}
	s := job.Status
	if s.Succeeded != indexes || s.Succeeded != succeeded || s.Failed != failed || s.Active != 0 ||
		s.CompletedIndexes != "0-5" {
		t.Errorf("Job %s counts %d succeeded, %d failed, %d active, indexes %s; of its pods %d have succeeded, %d failed",
			name, s.Succeeded, s.Failed, s.Active, s.CompletedIndexes, succeeded, failed)
	}
	if len(ran) < int(indexes) {
		t.Errorf("Job %s is complete, and only %d pods of it were run", name, len(ran))
	}
}

// clear deletes what would make pods anew.
func (w *worked) clear(t *testing.T) {
	t.Helper()
	w.must(t, func(ctx context.Context, c *kubernetes.Clientset) error {
		background := metav1.DeletePropagationBackground
		options := metav1.DeleteOptions{PropagationPolicy: &background}
		for _, name := range w.jobs {
			if err := ignore(c.BatchV1().Jobs("default").Delete(ctx, name, options), apierrors.IsNotFound); err != nil {
				return err
			}
		}
		return ignore(c.AppsV1().StatefulSets("default").Delete(ctx, "db", options), apierrors.IsNotFound)
	})
}
