{{- define "weir.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-weir" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "weir.proxySelector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: proxy
{{- end -}}

{{- define "weir.labels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "weir.snapshots" -}}
{{- if eq .Values.snapshots.kind "folder" -}}
/var/lib/weir
{{- else if eq .Values.snapshots.kind "s3" -}}
s3://{{ required "snapshots.s3.bucket" .Values.snapshots.s3.bucket }}/{{ .Values.snapshots.s3.prefix }}
{{- else -}}
redis://{{ required "snapshots.redis.host" .Values.snapshots.redis.host }}:{{ .Values.snapshots.redis.port }}/{{ .Values.snapshots.redis.db }}
{{- end -}}
{{- end -}}

{{- define "weir.servers" -}}
{{- if eq .Values.autoscaling.kind "none" }}{{ .Values.replicas }}{{ else }}{{ .Values.autoscaling.max }}{{ end -}}
{{- end -}}
