package nodens

// WhyForbiddenBy is WhyForbidden for the settings in a directory.
var WhyForbiddenBy = whyForbidden
