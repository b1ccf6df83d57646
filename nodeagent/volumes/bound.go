package volumes

import (
	"context"
	"errors"

	"monoplane.dev/nodeagent/eviction"
	"monoplane.dev/nodeagent/quota"
)

// bound sees to it that an emptyDir on disk cannot grow much beyond its limit, or beyond that of its pod, before the
// pod is evicted for it; it returns the project, 0 where there is no limit, or no quota. A volume that the record has
// had before may hold files already, which would not count: it stays as it is.
//
// An agent that is killed meanwhile leaves no limit that nobody knows: the record has a project before that has one.
func (e emptyDir) bound(v *volume) quota.Project {
	most := mostStored(v)
	if most == 0 || e.m.cfg.Kept(v.pod) {
		return 0
	}
	project, err := e.project(v)
	if err == nil && project != 0 {
		err = project.Limit(v.home, quota.Hard(most))
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		e.m.cfg.Logger.Warn("until a pod is evicted for what it stores, there is no bound to that",
			"pod", v.namespace()+"/"+v.pod.GetMetadata().GetName(), "volume", v.name, "error", err)
	}
	return project
}

func (e emptyDir) project(v *volume) (quota.Project, error) {
	rec, err := v.m.readRecord(v.home)
	if err != nil {
		return 0, err
	}
	if was, ok := rec.Volumes[v.name]; ok {
		return was.Project, nil
	}
	project, err := quota.New(v.dir)
	if err != nil {
		return 0, err
	}
	return project, reserve(v, place{Plugin: e.name(), Path: v.dir, Project: project})
}

// mostStored returns the least of the limits that hold for an emptyDir on disk, 0 for none.
func mostStored(v *volume) int64 {
	most, _ := eviction.StorageLimit(v.pod.GetSpec())
	if limit, ok := limitOf(v.source); ok && (most == 0 || limit.Value() < most) {
		most = limit.Value()
	}
	return most
}

// release takes the limit away, of which nothing is to be left when the volume is gone.
func (emptyDir) release(_ context.Context, home string, at place) error {
	if at.Project == 0 {
		return nil
	}
	err := at.Project.Limit(home, 0)
	if errors.Is(err, errors.ErrUnsupported) { // The file system was mounted anew, without quotas.
		return nil
	}
	return err
}
