package cronjob

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "monoplane.dev/api/batch/v1"
	batchv1rpc "monoplane.dev/api/batch/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/record"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/owned"
	"monoplane.dev/object"
	"monoplane.dev/rules/jobs"
	"monoplane.dev/rules/schedule"
)

// What happens when the last Job still runs.
const (
	forbid  = "Forbid"
	replace = "Replace"
)

// ScheduledAt is the annotation of a Job that has the time for which it was made.
const ScheduledAt = "batch.kubernetes.io/cronjob-scheduled-timestamp"

// look is one look at a CronJob: what it finds becomes the status.
type look struct {
	*Controller
	o    *batchv1.CronJob
	jobs []*batchv1.Job
	now  time.Time
	// changed is when the schedule changed; zero for never, as far as this controller has seen.
	changed time.Time
	// status is what is to be written.
	status *batchv1.CronJobStatus
}

func newLook(c *Controller, o *batchv1.CronJob, all []*batchv1.Job) *look {
	l := &look{Controller: c, o: o, jobs: all, now: time.Now(), status: object.Clone(o.GetStatus())}
	if l.status == nil {
		l.status = &batchv1.CronJobStatus{}
	}
	return l
}

// run does what there is to do for a CronJob, and returns when there is something to do again.
func (l *look) run(ctx context.Context) (again time.Duration, err error) {
	l.clean(ctx)
	if err := l.follow(ctx); err != nil {
		return 0, err
	}
	spec := l.o.GetSpec()
	if l.o.GetMetadata().GetDeletionTimestamp() != nil {
		return 0, nil
	}
	if zone := spec.GetTimeZone(); zone != "" {
		if _, err := time.LoadLocation(zone); err != nil {
			l.warn("UnknownTimeZone", "Scheduling", fmt.Sprintf("invalid timeZone: %q: %s", zone, err))
			return 0, nil
		}
	}
	if spec.GetSuspend() {
		return 0, nil
	}
	s, err := schedule.Parse(spec.GetSchedule(), spec.GetTimeZone())
	if err != nil {
		l.warn("UnparseableSchedule", "Scheduling",
			fmt.Sprintf("unparseable schedule: %q : %s", spec.GetSchedule(), err))
		return 0, nil
	}
	at, many, err := s.Due(l.since(), l.now)
	if err != nil {
		l.warn("InvalidSchedule", "Scheduling", fmt.Sprintf("invalid schedule: %s : %s", spec.GetSchedule(), err))
		return 0, nil
	}
	if many {
		l.warn("TooManyMissedTimes", "Scheduling",
			"too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	if !at.IsZero() {
		if err := l.meet(ctx, at); err != nil {
			return 0, err
		}
	}
	return s.Next(l.since(), l.now), nil
}

// since says which times of the schedule count.
func (l *look) since() schedule.Since {
	s := schedule.Since{
		Created: value.GoTime(l.o.GetMetadata().GetCreationTimestamp()),
		Last:    value.GoTime(l.status.GetLastScheduleTime()),
		Changed: l.changed,
	}
	if spec := l.o.GetSpec(); spec.StartingDeadlineSeconds != nil {
		d := time.Duration(spec.GetStartingDeadlineSeconds()) * time.Second
		s.Deadline = &d
	}
	return s
}

// follow brings the status to what has become of the Jobs.
func (l *look) follow(ctx context.Context) error {
	for _, j := range l.jobs {
		m := j.GetMetadata()
		listed := l.active(m.GetUid()) >= 0
		switch {
		case jobs.Finished(j.GetStatus()):
			if listed {
				l.drop(m.GetUid())
				l.say("SawCompletedJob", "Following",
					fmt.Sprintf("Saw completed job: %s, condition: %s", m.GetName(), ended(j)))
			}
			at := j.GetStatus().GetCompletionTime()
			if jobs.Has(j.GetStatus(), jobs.Complete) && at != nil &&
				value.GoTime(at).After(value.GoTime(l.status.GetLastSuccessfulTime())) {
				l.status.LastSuccessfulTime = at
			}
		case listed || m.GetDeletionTimestamp() != nil:
		case m.GetAnnotations()[ScheduledAt] != "":
			l.status.Active = append(l.status.Active, reference(j)) // its making was not written down
		default:
			l.warn("UnexpectedJob", "Following",
				"Saw a job that the controller did not create or forgot: "+m.GetName())
		}
	}
	for _, ref := range slices.Clone(l.status.GetActive()) {
		if slices.ContainsFunc(l.jobs, func(j *batchv1.Job) bool { return j.GetMetadata().GetUid() == ref.GetUid() }) {
			continue
		}
		live, err := l.api.Jobs.Get(ctx, &metav1.GetRequest{Namespace: ref.GetNamespace(), Name: ref.GetName()})
		switch {
		case apierrors.Is(err, apierrors.NotFound) || err == nil && live.GetMetadata().GetUid() != ref.GetUid():
			l.say("MissingJob", "Following", "Active job went missing: "+ref.GetName())
			l.drop(ref.GetUid())
		case err != nil:
			return fmt.Errorf("look for job %s/%s: %w", ref.GetNamespace(), ref.GetName(), err)
		}
	}
	return nil
}

// ended returns the condition by which a Job has ended.
func ended(j *batchv1.Job) string {
	if jobs.Has(j.GetStatus(), jobs.Complete) {
		return jobs.Complete
	}
	return jobs.FailedCondition
}

// meet makes the Job of a time, unless it is there or something is against it.
func (l *look) meet(ctx context.Context, at time.Time) error {
	spec := l.o.GetSpec()
	name := nameOf(l.o, at)
	if d := spec.GetStartingDeadlineSeconds(); spec.StartingDeadlineSeconds != nil &&
		at.Add(time.Duration(d)*time.Second).Before(l.now) {
		l.warn("MissSchedule", "Scheduling", "Missed scheduled time to start a job: "+at.UTC().Format(time.RFC1123Z))
		return nil
	}
	if value.GoTime(l.status.GetLastScheduleTime()).Equal(at) || slices.ContainsFunc(l.status.GetActive(),
		func(r *corev1.ObjectReference) bool { return r.GetName() == name }) {
		l.status.LastScheduleTime = value.Time(at)
		return nil
	}
	running := l.status.GetActive()
	switch {
	case len(running) == 0:
	case spec.GetConcurrencyPolicy() == forbid:
		l.say("JobAlreadyActive", "Scheduling",
			"Not starting job because prior execution is running and concurrency policy is Forbid")
		return nil
	case spec.GetConcurrencyPolicy() == replace:
		for _, r := range slices.Clone(running) {
			if err := l.remove(ctx, r); err != nil {
				return err
			}
		}
	}
	made, err := l.create(ctx, name, at)
	if made == nil || err != nil {
		return err
	}
	if l.active(made.GetMetadata().GetUid()) < 0 && !jobs.Finished(made.GetStatus()) {
		l.status.Active = append(l.status.Active, reference(made))
	}
	l.status.LastScheduleTime = value.Time(at)
	return nil
}

// create makes the Job of a time, or returns the one that an earlier look, or another server, has made. It returns
// nil when somebody else has a Job of the name.
func (l *look) create(ctx context.Context, name string, at time.Time) (*batchv1.Job, error) {
	m := l.o.GetMetadata()
	made, err := l.api.Jobs.Create(ctx, &batchv1rpc.CreateJobRequest{
		Namespace: m.GetNamespace(), Object: newJob(l.o, name, at),
	})
	switch {
	case err == nil:
		l.wrote(l.o, func(w *writes) { w.job = made.GetMetadata().GetResourceVersion() })
		l.say("SuccessfulCreate", "Creating", "Created job "+name)
		return made, nil
	case !apierrors.Is(err, apierrors.AlreadyExists):
		l.warn("FailedCreate", "Creating", "Error creating job: "+apierrors.From(err).Error())
		return nil, fmt.Errorf("make job %s/%s: %w", m.GetNamespace(), name, err)
	}
	there, err := l.api.Jobs.Get(ctx, &metav1.GetRequest{Namespace: m.GetNamespace(), Name: name})
	if err != nil {
		return nil, fmt.Errorf("look at job %s/%s: %w", m.GetNamespace(), name, err)
	}
	if controller.ManagerOf(there).GetUid() != m.GetUid() {
		return nil, nil //nolint:nilnil // somebody else's: there is nothing to do
	}
	return there, nil
}

// nameOf returns the name of the Job of a time: the same for whoever makes it.
func nameOf(o *batchv1.CronJob, at time.Time) string {
	return fmt.Sprintf("%s-%d", o.GetMetadata().GetName(), at.Unix()/60)
}

// newJob returns the Job of a time.
func newJob(o *batchv1.CronJob, name string, at time.Time) *batchv1.Job {
	template := object.Clone(o.GetSpec().GetJobTemplate())
	annotations := maps.Clone(template.GetMetadata().GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	zone, err := time.LoadLocation(o.GetSpec().GetTimeZone())
	if err != nil {
		zone = time.UTC // it was there when the schedule was read
	}
	annotations[ScheduledAt] = at.In(zone).Format(time.RFC3339)
	return &batchv1.Job{
		Metadata: &metav1.ObjectMeta{
			Namespace: o.GetMetadata().GetNamespace(), Name: name, Labels: template.GetMetadata().GetLabels(),
			Annotations: annotations, OwnerReferences: []*metav1.OwnerReference{owned.Reference(o)},
		},
		Spec: template.GetSpec(),
	}
}

// reference names a Job in the status.
func reference(j *batchv1.Job) *corev1.ObjectReference {
	m := j.GetMetadata()
	return &corev1.ObjectReference{
		Kind: batchv1.JobKind.Kind, ApiVersion: batchv1.JobKind.APIVersion(), Namespace: m.GetNamespace(),
		Name: m.GetName(), Uid: m.GetUid(), ResourceVersion: m.GetResourceVersion(),
	}
}

// clean removes the oldest Jobs that have ended beyond those that are kept.
func (l *look) clean(ctx context.Context) {
	var complete, failed []*batchv1.Job
	for _, j := range l.jobs {
		switch {
		case jobs.Has(j.GetStatus(), jobs.Complete):
			complete = append(complete, j)
		case jobs.Has(j.GetStatus(), jobs.FailedCondition):
			failed = append(failed, j)
		}
	}
	spec := l.o.GetSpec()
	if spec.SuccessfulJobsHistoryLimit != nil {
		l.keep(ctx, complete, int(spec.GetSuccessfulJobsHistoryLimit()))
	}
	if spec.FailedJobsHistoryLimit != nil {
		l.keep(ctx, failed, int(spec.GetFailedJobsHistoryLimit()))
	}
}

func (l *look) keep(ctx context.Context, all []*batchv1.Job, limit int) {
	slices.SortFunc(all, older)
	for _, j := range all[:max(0, len(all)-limit)] {
		if j.GetMetadata().GetDeletionTimestamp() == nil {
			_ = l.remove(ctx, reference(j)) // it is told by an event, and tried again at the next look
		}
	}
}

// older orders Jobs by their start; those that have not started come last.
func older(a, b *batchv1.Job) int {
	x, y := a.GetStatus().GetStartTime(), b.GetStatus().GetStartTime()
	switch {
	case x == nil && y != nil:
		return 1
	case x != nil && y == nil:
		return -1
	}
	if c := value.GoTime(x).Compare(value.GoTime(y)); c != 0 {
		return c
	}
	return strings.Compare(a.GetMetadata().GetName(), b.GetMetadata().GetName())
}

// remove deletes a Job and its pods.
func (l *look) remove(ctx context.Context, r *corev1.ObjectReference) error {
	uid, background := r.GetUid(), "Background"
	_, err := l.api.Jobs.Delete(ctx, &metav1.DeleteRequest{
		Namespace: r.GetNamespace(), Name: r.GetName(), Options: &metav1.DeleteOptions{
			PropagationPolicy: &background, Preconditions: &metav1.Preconditions{Uid: &uid},
		},
	})
	switch {
	case apierrors.Is(err, apierrors.NotFound):
	case err != nil:
		l.warn("FailedDelete", "Deleting", "Deleted job: "+apierrors.From(err).Error())
		return fmt.Errorf("remove job %s/%s: %w", r.GetNamespace(), r.GetName(), err)
	default:
		l.say("SuccessfulDelete", "Deleting", "Deleted job "+r.GetName())
	}
	l.drop(uid)
	return nil
}

// active returns where a Job is in the status; -1 for nowhere.
func (l *look) active(uid string) int {
	return slices.IndexFunc(l.status.GetActive(), func(r *corev1.ObjectReference) bool { return r.GetUid() == uid })
}

// drop takes a Job out of the status.
func (l *look) drop(uid string) {
	if i := l.active(uid); i >= 0 {
		l.status.Active = slices.Delete(l.status.Active, i, i+1)
	}
}

func (l *look) say(reason, action, note string) {
	l.events.Event(l.o, record.Normal, reason, action, note)
}

func (l *look) warn(reason, action, note string) {
	l.events.Event(l.o, record.Warning, reason, action, note)
}
