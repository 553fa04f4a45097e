{{- define "convoy.labels" -}}
app.kubernetes.io/name: convoy
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: convoy
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "convoy.selector" -}}
app.kubernetes.io/name: convoy
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "convoy.image" -}}
{{- $images := .root.Values.images -}}
{{- $repository := .repository | default (get $images .name) -}}
{{- if $images.registry }}{{ $images.registry }}/{{ end }}{{ $repository }}
{{- with dig .name "" ($images.digests | default dict) }}@{{ . }}{{ else }}:{{ $images.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* A constraint without a labelSelector would count no pods, so it gets the component's selector. */}}
{{- define "convoy.spread" -}}
{{- $own := dict "matchLabels" (include "convoy.selector" . | fromYaml) -}}
{{- $constraints := list -}}
{{- range .constraints -}}
{{- $constraints = append $constraints (set (deepCopy .) "labelSelector" (.labelSelector | default $own)) -}}
{{- end -}}
{{- toYaml $constraints }}
{{- end }}

{{- /* The TLS mode of the dashboard's Ingress (dashboard.ingress.tls.mode). Empty without an Ingress. */}}
{{- define "convoy.dashboard.tls" -}}
{{- $ingress := .Values.dashboard.ingress | default dict -}}
{{- if $ingress.enabled }}{{ dig "tls" "mode" "Ingress" $ingress }}{{ end }}
{{- end }}

{{- define "convoy.env" -}}
{{- range $name, $value := . }}
- {name: {{ $name }}, value: {{ include "convoy.text" $value | quote }}}
{{- end }}
{{- end }}

{{- /* Helm reads numbers in files as float64, which would print as 1e+06 from a million up. */}}
{{- define "convoy.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end }}
{{- end }}
