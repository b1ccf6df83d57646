// Package certificates describes the kinds of group certificates.k8s.io.
package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/duration"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/rules/signing"

	certificatesv1 "monoplane.dev/api/certificates/v1"
)

type request = certificatesv1.CertificateSigningRequest

// legacySigner is a name that requests had before signers had names.
const legacySigner = "kubernetes.io/legacy-unknown"

// CertificateSigningRequest describes the kind. Who makes a request is noted by the server; approving it and signing
// it are rights on its signer, beside those on the subresources.
func CertificateSigningRequest(c define.Config) define.Definition {
	var now clock.PassiveClock = clock.RealClock{}
	if c.Deps.Clock != nil {
		now = c.Deps.Clock
	}
	return define.Definition{Strategy: registry.Typed[*request]{
		Kind:       certificatesv1.CertificateSigningRequestKind,
		Default:    DefaultCertificateSigningRequest,
		DefaultNew: DefaultNewCertificateSigningRequest,
		Admit:      admit,
		Validate:   ValidateCertificateSigningRequest,
		Main: registry.TypedUpdateRules[*request]{
			Apply: func(asked, live *request) *request {
				next := object.Clone(asked)
				DefaultCertificateSigningRequest(next)
				next.Spec, next.Status = live.GetSpec(), live.GetStatus()
				return next
			},
			Validate: ValidateCertificateSigningRequestUpdate,
		},
		Subresources: map[string]registry.TypedUpdateRules[*request]{
			"approval": {
				Apply: func(asked, live *request) *request {
					next := object.Clone(live)
					next.Status = &certificatesv1.CertificateSigningRequestStatus{
						Conditions:  object.Clone(asked).GetStatus().GetConditions(),
						Certificate: live.GetStatus().GetCertificate(),
					}
					stamp(next, live, now.Now())
					return next
				},
				Authorize: func(ctx context.Context, _ *registry.Update, _, live *request) error {
					return mayDo(ctx, c.Rights, "approve", live)
				},
				Validate: ValidateCertificateSigningRequestApproval,
			},
			"status": {
				Apply: func(asked, live *request) *request {
					next := object.Clone(asked)
					DefaultCertificateSigningRequest(next)
					next.Spec = live.GetSpec()
					keepDecisions(next, live)
					stamp(next, live, now.Now())
					return next
				},
				Authorize: func(ctx context.Context, _ *registry.Update, next, live *request) error {
					if proto.Equal(next.GetStatus(), live.GetStatus()) {
						return nil
					}
					return mayDo(ctx, c.Rights, "sign", live)
				},
				Validate: ValidateCertificateSigningRequestStatus,
			},
		},
		Fields: map[string]func(*request) string{
			"spec.signerName": func(o *request) string { return o.GetSpec().GetSignerName() },
		},
		Table: define.Columns[*request]{
			define.Age[*request](),
			define.Text("SignerName", "Who is to sign.", func(o *request) string { return o.GetSpec().GetSignerName() }),
			define.Text("Requestor", "Who has made the request.", func(o *request) string { return o.GetSpec().GetUsername() }),
			define.Text("RequestedDuration", "Wanted life of the certificate.", wanted),
			define.Text("Condition", "What was decided.", decided),
		},
	}.Strategy()}
}

// DefaultCertificateSigningRequest fills in a request.
func DefaultCertificateSigningRequest(o *request) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
	defaults.Message(&o.Status)
}

// DefaultNewCertificateSigningRequest is DefaultCertificateSigningRequest without what nobody may say of himself, or
// decide beforehand.
func DefaultNewCertificateSigningRequest(o *request) {
	DefaultCertificateSigningRequest(o)
	s := o.Spec
	s.Username, s.Uid, s.Groups, s.Extra = "", "", nil, nil
	o.Status = &certificatesv1.CertificateSigningRequestStatus{}
}

// admit notes who makes a request. No certificate of the server's own signer makes an administrator, nor a part of the
// control plane: whoever may approve could otherwise take from what the rules of those promise.
func admit(ctx context.Context, o *request) error {
	if u := authn.UserFrom(ctx); u != nil {
		s := o.GetSpec()
		s.Username, s.Uid, s.Groups = u.Name, u.UID, slices.Clone(u.Groups)
		for key, values := range u.Extra {
			if s.Extra == nil {
				s.Extra = make(map[string]*certificatesv1.ExtraValue)
			}
			s.Extra[key] = &certificatesv1.ExtraValue{Items: slices.Clone(values)}
		}
	}
	if o.GetSpec().GetSignerName() != signing.Client {
		return nil
	}
	parsed, err := signing.Parse(o.GetSpec().GetRequest())
	if err != nil {
		return nil //nolint:nilerr // validation says so
	}
	subject := &authn.User{Name: parsed.Subject.CommonName, Groups: parsed.Subject.Organization}
	var why string
	switch {
	case slices.Contains(subject.Groups, authn.AdminsGroup):
		why = "use of " + signing.Client + " signer with " + authn.AdminsGroup + " group is not allowed"
	case auth.Of(subject).Component():
		why = fmt.Sprintf("use of %s signer for %q, a part of the control plane, is not allowed", signing.Client,
			subject.Name)
	default:
		return nil
	}
	return apierrors.NewForbidden(certificatesv1.CertificateSigningRequestKind, o.GetMetadata().GetName(), "%s", why)
}

// mayDo asks for the right to approve or to sign for the signer of a request; who has it for DOMAIN/* has it for all
// signers of the domain.
func mayDo(ctx context.Context, authz *auth.Authorizer, verb string, live *request) error {
	signer := live.GetSpec().GetSignerName()
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		a := auth.Attributes{Verb: verb, Group: live.ObjectKind().Group, Resource: "signers", Name: name}
		if authz.Authorize(auth.From(ctx), a) == nil {
			return nil
		}
	}
	return apierrors.NewForbidden(live.ObjectKind(), live.GetMetadata().GetName(),
		"user not permitted to %s requests with signerName %q", verb, signer)
}

// keepDecisions leaves the approval or denial as it is, unless one is added or taken away, which validation refuses.
func keepDecisions(next, live *request) {
	for _, kind := range []string{signing.Approved, signing.Denied} {
		old, new := indices(live, kind), indices(next, kind)
		if len(old) != len(new) {
			continue
		}
		for i := range old {
			next.Status.Conditions[new[i]] = live.Status.Conditions[old[i]]
		}
	}
}

func indices(o *request, kind string) (list []int) {
	for i, c := range o.GetStatus().GetConditions() {
		if c.GetType() == kind {
			list = append(list, i)
		}
	}
	return list
}

// stamp fills in the times of conditions that have none.
func stamp(next, live *request, at time.Time) {
	now := value.Time(at)
	for i, c := range next.GetStatus().GetConditions() {
		if value.GoTime(c.GetLastUpdateTime()).IsZero() || value.GoTime(c.GetLastTransitionTime()).IsZero() {
			c = object.Clone(c) // it may be the live one
			next.Status.Conditions[i] = c
		}
		if value.GoTime(c.GetLastUpdateTime()).IsZero() {
			c.LastUpdateTime = now
		}
		if !value.GoTime(c.GetLastTransitionTime()).IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, old := range live.GetStatus().GetConditions() {
			same := old.GetType() == c.GetType() && old.GetStatus() == c.GetStatus()
			if same && !value.GoTime(old.GetLastTransitionTime()).IsZero() {
				c.LastTransitionTime = old.GetLastTransitionTime()
				break
			}
		}
	}
}

// ValidateCertificateSigningRequest checks a request that is to be created.
func ValidateCertificateSigningRequest(o *request) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkRequest(f, o, nil)
	}
	return f.Causes()
}

// ValidateCertificateSigningRequestUpdate checks a change of what is neither spec nor status.
func ValidateCertificateSigningRequestUpdate(new, old *request) []apierrors.Cause {
	return checkUpdate(new, old, false, false)
}

// ValidateCertificateSigningRequestApproval checks an approval or a denial.
func ValidateCertificateSigningRequestApproval(new, old *request) []apierrors.Cause {
	return checkUpdate(new, old, true, false)
}

// ValidateCertificateSigningRequestStatus checks what a signer says.
func ValidateCertificateSigningRequestStatus(new, old *request) []apierrors.Cause {
	return checkUpdate(new, old, false, true)
}

func checkUpdate(new, old *request, approves, signs bool) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkRequest(f, new, old)
		checkDecisions(f, new, old, approves)
		p := f.Root("status").Child("certificate")
		if was := old.GetStatus().GetCertificate(); !bytes.Equal(new.GetStatus().GetCertificate(), was) {
			switch {
			case !signs:
				f.Forbidden(p, "updates may not set certificate content")
			case len(was) > 0:
				f.Forbidden(p, "updates may not modify existing certificate content")
			}
		}
	}
	return f.Causes()
}

// checkDecisions checks that nothing that was decided is taken back, and that only an approval decides.
func checkDecisions(f *validation.Faults, new, old *request, approves bool) {
	p := f.Root("status").Child("conditions")
	for _, kind := range []string{signing.Approved, signing.Denied, signing.Failed} {
		was, is := indices(old, kind), indices(new, kind)
		switch {
		case len(is) < len(was):
			f.Forbidden(p, fmt.Sprintf("updates may not remove a condition of type %q", kind))
		case approves || kind == signing.Failed:
		case len(is) > len(was):
			f.Forbidden(p, fmt.Sprintf("updates may not add a condition of type %q", kind))
		default:
			for i := range is {
				if !proto.Equal(new.Status.Conditions[is[i]], old.Status.Conditions[was[i]]) {
					f.Forbidden(p, fmt.Sprintf("updates may not modify a condition of type %q", kind))
					break
				}
			}
		}
	}
}

// checkRequest checks the whole object; old is nil for a new one.
func checkRequest(f *validation.Faults, o, old *request) {
	f.CoreMeta(o.GetMetadata(), old.GetMetadata(), false, validation.NameIsPathSegment)
	s, p := o.GetSpec(), f.Root("spec")
	if _, err := signing.Parse(s.GetRequest()); err != nil {
		f.Invalid(p.Child("request"), string(s.GetRequest()), err.Error())
	}
	if len(s.GetUsages()) == 0 {
		f.Required(p.Child("usages"), "")
	}
	for i, u := range s.GetUsages() {
		at := p.Child("usages").Index(i)
		if !signing.Known(u) {
			f.OneOf(at, u, signing.Usages()...)
		}
		if slices.Contains(s.GetUsages()[:i], u) {
			f.Duplicate(at, u)
		}
	}
	checkSigner(f, p.Child("signerName"), s.GetSignerName())
	if s != nil && s.ExpirationSeconds != nil && *s.ExpirationSeconds < 600 {
		f.InvalidValue(p.Child("expirationSeconds"), *s.ExpirationSeconds,
			"may not specify a duration less than 600 seconds (10 minutes)")
	}
	checkConditions(f, o)
	certificate := o.GetStatus().GetCertificate()
	if old != nil && bytes.Equal(certificate, old.GetStatus().GetCertificate()) {
		return
	}
	if err := checkCertificate(certificate); err != nil {
		f.Invalid(f.Root("status").Child("certificate"), "<certificate data>", err.Error())
	}
}

// checkSigner checks the name of a signer: a domain, a slash and a path.
func checkSigner(f *validation.Faults, p *validation.Path, name string) {
	domain, path, _ := strings.Cut(name, "/")
	switch {
	case name == legacySigner:
		f.Invalid(p, name, "the legacy signerName is not allowed via this API version")
		return
	case name == "":
		f.Required(p, "")
		return
	case strings.Count(name, "/") != 1:
		f.Invalid(p, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
		return
	}
	const longest = utilvalidation.DNS1123SubdomainMaxLength
	if len(domain) > longest {
		f.TooLong(p, longest)
	}
	checkParts(f, p, domain, utilvalidation.IsDNS1123Label)
	if !strings.Contains(domain, ".") {
		f.Invalid(p, domain, "should be a domain with at least two segments separated by dots")
	}
	checkParts(f, p, path, utilvalidation.IsDNS1123Subdomain)
	if most := 2*longest + utilvalidation.DNS1123LabelMaxLength + 2; len(name) > most {
		f.TooLong(p, most)
	}
}

// checkParts checks what dots part, up to the first that is wrong.
func checkParts(f *validation.Faults, p *validation.Path, text string, wrong func(string) []string) {
	for part := range strings.SplitSeq(text, ".") {
		if problems := wrong(part); len(problems) > 0 {
			for _, problem := range problems {
				f.Invalid(p, text, fmt.Sprintf("validating label %q: %s", part, problem))
			}
			return
		}
	}
}

func checkConditions(f *validation.Faults, o *request) {
	p := f.Root("status").Child("conditions")
	list := o.GetStatus().GetConditions()
	for i, c := range list {
		at := p.Index(i)
		if c.GetType() == "" {
			f.Required(at.Child("type"), "")
		}
		allowed := []string{"False", "True", "Unknown"}
		if slices.Contains([]string{signing.Approved, signing.Denied, signing.Failed}, c.GetType()) {
			allowed = []string{"True"}
		}
		f.RequiredOneOf(at.Child("status"), c.GetStatus(), allowed...)
		has := func(kind string) bool {
			return slices.ContainsFunc(list[:i], func(e *certificatesv1.CertificateSigningRequestCondition) bool {
				return e.GetType() == kind
			})
		}
		if c.GetType() == signing.Approved && has(signing.Denied) || c.GetType() == signing.Denied && has(signing.Approved) {
			f.Invalid(p, c.GetType(), "Approved and Denied conditions are mutually exclusive")
		}
		if has(c.GetType()) {
			f.Duplicate(at.Child("type"), c.GetType())
		}
	}
}

// checkCertificate checks that there are PEM blocks with certificates and no others.
func checkCertificate(text []byte) error {
	for blocks := 0; len(text) > 0; blocks++ {
		block, rest := pem.Decode(text)
		if block == nil {
			if blocks == 0 {
				return errors.New("must contain at least one CERTIFICATE PEM block")
			}
			return nil
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) > 0 {
			return errors.New("no PEM block headers are permitted")
		}
		certs, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certs) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
		text = rest
	}
	return nil
}

// wanted is the life that is asked for, as the table has it.
func wanted(o *request) string {
	if s := o.GetSpec(); s != nil && s.ExpirationSeconds != nil {
		return duration.HumanDuration(time.Duration(*s.ExpirationSeconds) * time.Second)
	}
	return "<none>"
}

// decided is what was decided, as the table has it.
func decided(o *request) string {
	text := "Pending"
	switch {
	case signing.Has(o, signing.Denied):
		text = "Denied"
	case signing.Has(o, signing.Approved):
		text = "Approved"
	}
	if signing.Has(o, signing.Failed) {
		text += ",Failed"
	}
	if len(o.GetStatus().GetCertificate()) > 0 {
		text += ",Issued"
	}
	return text
}
